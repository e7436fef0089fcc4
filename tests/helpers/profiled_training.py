"""A user's own training with DDP over gloo: PyTorch's profiler and its ExecutionTraceObserver record three steps."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule, tensorboard_trace_handler

dist.init_process_group("gloo")
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.ReLU(), torch.nn.Linear(200, 1))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(steps):
    for step in steps:
        loss = model(torch.randn(8, 300)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item()}", flush=True)
        yield


with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=2, warmup=1, active=3, repeat=1),
    on_trace_ready=tensorboard_trace_handler("log"),
    execution_trace_observer=ExecutionTraceObserver().register_callback("observed.et.json"),
) as profiler:
    for _ in train(range(6)):
        profiler.step()
for _ in train(range(6, 10**6)):  # the observer's file is whole when the profiler has ended
    pass
