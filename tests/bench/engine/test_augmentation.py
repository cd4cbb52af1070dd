"""Random crops, flips and rotations: each against slow and obvious code, rotations against torchvision's own chain."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torchvision.transforms.functional as theirs
from conftest import identical, largest_gap, resumed, simulate, trained
from torch import Tensor

from algorithms import build
from bench.engine.rng import stream
from bench.engine.samples import DEGREES, PADDING, PER_DEGREE, Crops, draw_crops

SIZES = [(32, 32), (24, 40), (9, 7)]


def random_images(count: int, channels: int, height: int, width: int) -> Tensor:
    shape = (count, channels, height, width)
    return torch.randint(
        1, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def flat(images: Tensor) -> Tensor:
    """(N, C, H, W) as `Crops` takes it: pixel after pixel, a black one last."""
    return F.pad(images.permute(0, 2, 3, 1).flatten(0, 2), (0, 0, 0, 1))


def crops_of(images: Tensor, augmentation: str) -> Crops:
    return Crops(flat(images), *images.shape[2:], augmentation)


def degrees(angle: int) -> float:
    return angle / PER_DEGREE - DEGREES


def by_torchvision(image: Tensor, row: int, column: int, mirror: int, angle: int) -> Tensor:
    """(C, H, W) of (C, H, W), all uint8: padding, crop, flip and rotation, one after another."""
    channels, height, width = image.shape
    window = theirs.crop(theirs.pad(image, [PADDING]), row, column, height, width)
    window = theirs.hflip(window) if mirror else window
    return theirs.rotate(window, degrees(angle), fill=[0.0] * channels)


@pytest.mark.parametrize("augmentation", ["flip_crop", "flip_crop_reflect"])
def test_crops_and_flips_equal_padding_then_cutting(augmentation: str) -> None:
    images = random_images(5, 3, 8, 6)
    crops, every = crops_of(images, augmentation), torch.arange(5)
    mode = {"flip_crop": "constant", "flip_crop_reflect": "reflect"}[augmentation]
    padded = F.pad(images.float(), (4, 4, 4, 4), mode=mode)
    for row in range(9):
        for column in range(9):
            window = padded[:, :, row : row + 8, column : column + 6].permute(0, 2, 3, 1).byte()
            assert torch.equal(
                crops(every, torch.tensor([[row, column, 0, 0]]).repeat(5, 1)), window
            )
            assert torch.equal(
                crops(every, torch.tensor([[row, column, 1, 0]]).repeat(5, 1)), window.flip(2)
            )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_crop_flip_and_rotation_are_torchvisions_to_the_bit(
    height: int, width: int, channels: int
) -> None:
    images = random_images(20, channels, height, width)
    index = torch.arange(200) % 20
    generator = torch.Generator().manual_seed(height)
    draws = draw_crops(generator, 1, 200, "flip_crop_rotate")[0]
    found = crops_of(images, "flip_crop_rotate")(index, draws).permute(0, 3, 1, 2)
    expected = [
        by_torchvision(images[i], *draw)
        for i, draw in zip(index.tolist(), draws.tolist(), strict=True)
    ]
    assert torch.equal(found, torch.stack(expected))


def test_an_augmented_batch_is_the_window_that_was_drawn() -> None:
    simulation = simulate("fedavg", augmentation="flip_crop_rotate")
    draws = torch.tensor([[[0, 3, 0, 200], [8, 1, 1, 1900]]])
    x = simulation.federation.inputs(0, torch.tensor([[2, 5]]), draws).take(0, 2)
    raw = simulation.federation.train.at(simulation.federation.clients[0]) * 0.25 + 0.5
    images = (raw * 255).round().byte()
    windows = [
        by_torchvision(images[i], *draw) for i, draw in zip((2, 5), draws[0].tolist(), strict=True)
    ]
    torch.testing.assert_close(x, (torch.stack(windows).double() / 255 - 0.5) / 0.25)


@pytest.mark.parametrize("augmentation", ["flip_crop", "flip_crop_reflect", "flip_crop_rotate"])
@pytest.mark.parametrize(("steps", "batch_size"), [(1, 1), (1, 7), (5, 1), (3, 64)])
def test_draws_are_those_of_whole_tensors_of_int64(
    steps: int, batch_size: int, augmentation: str
) -> None:
    """Offsets, then mirrors, then angles, as stored runs drew them."""
    draws = draw_crops(stream(0, "augment", 1, 0), steps, batch_size, augmentation)
    generator = stream(0, "augment", 1, 0)
    columns = [
        torch.randint(0, below, (steps, batch_size, width), generator=generator)
        for below, width in ((9, 2), (2, 1), (1921, 1))
    ]
    expected = torch.cat(columns, dim=2)[..., : draws.shape[2]]
    assert draws.shape[2] == (4 if augmentation == "flip_crop_rotate" else 3)
    assert torch.equal(draws.long(), expected)


def test_the_crops_and_flips_of_a_seed_are_what_they_were() -> None:
    draws = draw_crops(stream(0, "augment", 1, 0), 2, 3, "flip_crop")
    assert draws.tolist() == [
        [[0, 1, 1], [3, 4, 1], [1, 7, 1]],
        [[3, 3, 1], [1, 2, 0], [0, 7, 0]],
    ]


def test_augmented_requests_are_alike_in_both_backends_and_after_a_resume(tmp_path: Path) -> None:
    requests, options = build("feddkd", dkd_augmented=True), {"augmentation": "flip_crop"}
    whole = trained(requests, rounds=4, **options)
    assert identical(resumed(tmp_path, requests, **options), whole)
    assert largest_gap(whole, trained(requests, "stacked", 4, **options)) < 1e-10
    assert largest_gap(whole, trained(build("feddkd"), rounds=4, **options)) > 1e-4


def test_requests_are_augmented_as_training_is() -> None:
    """Not at all, if the setting says so."""
    asked = trained(build("feddkd", dkd_augmented=True), rounds=1)
    assert largest_gap(asked, trained(build("feddkd"), rounds=1)) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("augmentation", ["flip_crop", "flip_crop_reflect", "flip_crop_rotate"])
def test_a_gpu_cuts_the_same_windows(augmentation: str) -> None:
    pixels = flat(random_images(20, 3, 32, 32))
    draws = draw_crops(torch.Generator().manual_seed(0), 1, 400, augmentation)[0]
    index = torch.arange(400, dtype=torch.int32) % 20
    expected = Crops(pixels, 32, 32, augmentation)(index, draws)
    found = Crops(pixels.cuda(), 32, 32, augmentation)(index.cuda(), draws.cuda())
    assert torch.equal(found.cpu(), expected)
