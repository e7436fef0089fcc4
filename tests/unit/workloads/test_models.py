"""The models' data files and what emulated compute makes of them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.models import catalog

# Counts as torchvision and transformers give them.
PARAMETERS = {
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "vgg16": 138_357_544,
    "densenet161": 28_681_000,
    "densenet201": 20_013_928,
    "mobilenet_v2": 3_504_872,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "inception_v3": 27_161_264,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt-1.5b": 1_557_686_400,
    "gpt-3b": 2_696_064_000,
    "small_cnn": 139_930,  # ours: workloads/test_learning.py holds it against the network
}
TRANSFORMERS = [name for name in PARAMETERS if name.startswith(("bert", "gpt"))]


def test_the_catalog_holds_exactly_these_models() -> None:
    assert set(catalog.names()) == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts_are_exact(name: str) -> None:
    model = catalog.load(name)
    assert model.name == name
    assert model.parameters == PARAMETERS[name]
    assert sum(sum(layer.sizes) for layer in model.layers) == PARAMETERS[name]
    assert all(size > 0 for layer in model.layers for size in layer.sizes)


@pytest.mark.parametrize("name", sorted(set(PARAMETERS) - {*TRANSFORMERS, "small_cnn"}))
def test_layers_equal_torchvisions(name: str) -> None:
    torch = pytest.importorskip("torch")
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    from workloads.rank.compute.vision_torch import build_torchvision

    with torch.device("meta"):
        model = build_torchvision(name)
    sizes = [tensor.numel() for tensor in model.parameters()]
    assert [size for layer in catalog.load(name).layers for size in layer.sizes] == sizes
    known = dict(model.named_modules())
    assert all(layer.name in known for layer in catalog.load(name).layers)


def test_branches_are_those_of_torchvisions_graphs() -> None:
    export = pytest.importorskip("workloads.models.export")
    assert catalog.branching() == ("inception_v3", "resnet101", "resnet50")
    for name in export.VISION:
        graph = export.graph(name)
        assert catalog.load(name).after == (None if graph is None else tuple(map(tuple, graph)))


def test_inceptions_modules_branch_and_join() -> None:
    model = catalog.load("inception_v3")
    assert model.after is not None
    names = [layer.name for layer in model.layers]
    (first, joined) = (names.index(f"Mixed_5{letter}.branch1x1.conv") for letter in "bc")
    assert {names[place] for place in model.after[joined]} == {
        f"Mixed_5b.{name}.bn" for name in ("branch1x1", "branch5x5_2", "branch3x3dbl_3", "branch_pool")
    }
    assert sum(before == (first - 1,) for before in model.after) == 4, "four branches begin where the first does"


@pytest.mark.parametrize(
    ("name", "forward_gflops"),
    # Multiply-adds as torchvision's pages publish them, twice (two FLOPs each).
    [
        ("resnet50", 2 * 4.09),
        ("resnet101", 2 * 7.80),
        ("vgg16", 2 * 15.47),
        ("densenet161", 2 * 7.73),
        ("densenet201", 2 * 4.29),
        ("mobilenet_v2", 2 * 0.30),
        ("inception_v3", 2 * 5.71),
    ],
)
def test_flops_are_the_published_ones(name: str, forward_gflops: float) -> None:
    total = sum(layer.flops for layer in catalog.load(name).layers)
    assert total / 1e9 == pytest.approx(forward_gflops, rel=0.01)


def test_flops_of_bert_follow_from_its_dense_layers() -> None:
    """Two FLOPs a token and weight outside the embeddings, plus the two products of attention, and the head."""
    tokens, depth, hidden, words = 512, 24, 1024, 30522
    head = 2 * tokens * hidden * (hidden + words)
    expected = 2 * tokens * depth * 12 * hidden**2 + depth * 4 * tokens**2 * hidden + head
    assert sum(layer.flops for layer in catalog.load("bert-large").layers) == expected


@pytest.mark.parametrize(("name", "l", "h", "v"), [("gpt-1.5b", 48, 1600, 50304), ("gpt-3b", 54, 2000, 50304)])
def test_gpts_have_the_parameters_of_lis_equation_10(name: str, l: int, h: int, v: int) -> None:  # noqa: E741
    """The equation leaves out the last normalization, of two times the hidden size."""
    assert catalog.load(name).parameters == 12 * l * h**2 + 13 * l * h + (v + 1024) * h + 2 * h


@given(st.sampled_from(sorted(PARAMETERS)), st.integers(1, 1000))
def test_scaled_sizes_add_up_exactly(name: str, scale: int) -> None:
    model = catalog.load(name)
    scaled = catalog.scaled_sizes(model, scale)
    assert sum(map(sum, scaled)) == PARAMETERS[name] // scale
    assert len(scaled) == len(model.layers)
    before = after = 0
    for layer, sizes in zip(model.layers, scaled, strict=True):
        before += sum(layer.sizes)
        after += sum(sizes)
        assert after == before // scale
        assert all(size > 0 for size in sizes)
        assert len(sizes) <= len(layer.sizes)


def test_scale_one_changes_nothing() -> None:
    model = catalog.load("resnet50")
    assert catalog.scaled_sizes(model, 1) == tuple(layer.sizes for layer in model.layers)


def test_resnet50_at_scale_100() -> None:
    sizes = catalog.scaled_sizes(catalog.load("resnet50"), 100)
    assert sum(map(sum, sizes)) == 255_570
    assert sizes[0] == (94,)


@pytest.mark.parametrize("name", PARAMETERS)
def test_emulated_layers_share_out_the_whole_time(name: str) -> None:
    layers = catalog.emulate(catalog.load(name), compute_s=0.3, scale=100)
    assert sum(layer.forward_s for layer in layers) == pytest.approx(0.1)
    assert sum(layer.backward_s for layer in layers) == pytest.approx(0.2)


def test_calibrated_times() -> None:
    times = {name: catalog.load(name).compute_s for name in catalog.names()}
    fitted = {"resnet50", "vgg16", "bert-large", "densenet161"}
    by_flops = {"resnet101": "resnet50", "bert-base": "bert-large"}
    assert {name for name, seconds in times.items() if seconds} == {*fitted, *by_flops}
    assert catalog.compute_time(catalog.load("resnet50"), 32) == pytest.approx(times["resnet50"] / 2)
    assert catalog.compute_time(catalog.load("densenet201"), 64) is None
    assert all("0." in catalog.load(name).source for name in fitted)
    for name, like in by_flops.items():
        flops = [sum(layer.flops for layer in catalog.load(one).layers) for one in (name, like)]
        assert times[name] / times[like] == pytest.approx(flops[0] / flops[1], rel=1e-3)
        assert like in catalog.load(name).source


TEN_CLASSES = {"mobilenet_v2": 2_236_682, "densenet201": 18_112_138, "resnet50": 23_528_522, "resnet101": 42_520_650}


@pytest.mark.parametrize("name", sorted(set(PARAMETERS) - {*TRANSFORMERS, "small_cnn"}))
def test_models_for_ten_classes_are_torchvisions(name: str) -> None:
    found = catalog.with_classes(catalog.load(name), 10)
    assert found.parameters == sum(sum(layer.sizes) for layer in found.layers)
    if name in TEN_CLASSES:
        assert found.parameters == TEN_CLASSES[name]
    torch = pytest.importorskip("torch")
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    from workloads.rank.compute.vision_torch import build_torchvision

    with torch.device("meta"):
        model = build_torchvision(name, classes=10)
    assert [size for layer in found.layers for size in layer.sizes] == [one.numel() for one in model.parameters()]


def test_imagenets_classes_are_what_the_catalog_has() -> None:
    assert catalog.with_classes(catalog.load("resnet50"), 1000) == catalog.load("resnet50")


def test_a_model_of_text_has_no_classes() -> None:
    assert not any(catalog.has_classes(catalog.load(name)) for name in TRANSFORMERS)
    assert all(catalog.has_classes(catalog.load(name)) for name in set(PARAMETERS) - {*TRANSFORMERS, "small_cnn"})


def test_the_workload_imports_no_framework() -> None:
    """`orch plan` must not wait for torch."""
    code = "import sys, workloads.ddp; print([m for m in ('torch', 'torchvision', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
