"""Modules and optimizers under `use`: copied, pickled, and stepping as in eager."""

from __future__ import annotations

import copy
import io
import pickle
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import atentriton
from atentriton.decisions import watched


@pytest.fixture
def x() -> Tensor:
    return torch.rand(6, dtype=torch.float64) + 0.5


def test_modules_are_copied_and_pickled() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.BatchNorm1d(4)).eval()
    given = torch.rand(2, 3)
    with atentriton.use():
        module(given)
        copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        file.seek(0)
        module.load_state_dict(torch.load(file))
        for made in copies:
            assert_close(made(given), module(given))
        assert "GELU" in repr(module) and "tensor" in repr(given)
        assert f"{given.new_tensor(0.25):.1f}" == "0.2"


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Adagrad": {},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "Rprop": {},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, x: Tensor) -> None:
    found: list[Tensor] = []
    for on in (False, True):
        w = x.clone().requires_grad_()
        made = getattr(torch.optim, name)([w], foreach=False, **OPTIMIZERS[name])
        with atentriton.use() if on else nullcontext(), watched() as events:
            for _ in range(3):
                made.zero_grad()
                (w.tanh() ** 2).sum().backward()
                made.step()
        assert bool(events) == on
        found.append(w.detach())
    assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)
