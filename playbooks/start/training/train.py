"""A PyTorch DDP training on made-up data: put your own in its place, or take its last lines over into yours.

orch needs a line for every step, on standard output or standard error, with how long the step took or nothing but the
line itself. Progress bars (tqdm) and logging are fine.
"""

import logging
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("train")

# MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK are set by orch as torchrun would set them.
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # ranks of a local testbed share this machine's processors

torch.manual_seed(1)
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8)).to(device)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

# Endless: orch ends it (SIGTERM) when the window is measured. A training of a fixed length has to be longer than
# that: the steps of `measure`, and 20 before them from which orch chooses the warm-up.
step = 0
while True:
    began = time.monotonic()
    samples, wanted = torch.randn(32, 64, device=device), torch.randint(8, (32,), device=device)
    loss = torch.nn.functional.cross_entropy(model(samples), wanted)
    optimizer.zero_grad()
    loss.backward()  # sends the gradients
    optimizer.step()
    log.info("step %d took %.6f s, loss %.4f", step, time.monotonic() - began, loss.item())
    step += 1
