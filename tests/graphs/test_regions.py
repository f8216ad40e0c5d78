"""Which operators make one kernel, and why others do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

from atentriton.graphs import regions
from atentriton.graphs.regions import Region, Regions, operator_of
from atentriton.graphs.trace import trace


def found(function: Callable[..., Any], *given: Any) -> Regions:
    leaves = given or (torch.rand(4, 6),)
    module = trace(lambda *g: [function(*g)], leaves).module
    return regions.find(module.graph)


def names(found: Regions) -> list[list[str]]:
    return [[operator_of(n).partition(".")[0] for n in r.nodes] for r in found.items]


def test_a_chain_is_one_region() -> None:
    assert names(found(lambda x: (x.sin() * 2).exp())) == [["sin", "mul", "exp"]]


def test_what_comes_back_is_another_region() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.sin()
        return y * y.sum()

    assert names(found(function)) == [["sin"], ["mul"]]


def test_a_region_goes_on_beside_what_leaves_it() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.sin()
        total = y.sum()
        return y.exp() + 1, total

    assert names(found(lambda x: function(x)[0])) == [["sin", "exp", "add"]]


def test_branches_that_meet() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return x.sin() * y.exp()

    assert names(found(function, torch.rand(3), torch.rand(3))) == [
        ["sin", "exp", "mul"]
    ]


def test_siblings_read_their_tensor_once() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.stack([x.sin(), x.exp()])

    assert names(found(function)) == [["sin", "exp"]]


def test_nothing_reaches_across_a_write() -> None:
    def function(x: Tensor, buffer: Tensor) -> Tensor:
        y = x * buffer
        buffer.add_(1)
        return y * buffer

    both = torch.rand(3), torch.rand(3)
    assert names(found(function, *both)) == [["mul"], ["mul"]]


def test_random_numbers_are_drawn_in_order() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        first = torch.bernoulli(y.sum(0))
        second = torch.bernoulli(x)
        return y * second * first

    assert names(found(function)) == [["mul"], ["mul", "mul"]]


def test_reasons() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        y = torch.softmax(x @ w, -1).to(torch.complex32)
        return y, F.mse_loss(x, x), x.add_(1), torch.frexp(x)[0]

    with_weights = torch.rand(3, 3), torch.rand(3, 3)
    reasons = [*found(lambda *g: function(*g)[2], *with_weights).reasons.values()]
    assert "matmul is not elementwise" in reasons
    assert "softmax.int is not elementwise" in reasons
    assert "add_.Tensor writes to memory" in reasons
    assert "mse_loss reduces" in reasons
    assert "frexp.Tensor has several results" in reasons
    assert any("complex32" in reason for reason in reasons)


def test_constants_alone_are_no_region() -> None:
    assert names(found(lambda x: torch.zeros_like(x).sum())) == []


def test_refused_nodes_are_left_out() -> None:
    module = trace(lambda x: [(x.sin() * 2).exp()], (torch.rand(3),)).module
    (middle,) = (n for n in module.graph.nodes if operator_of(n) == "mul.Tensor")
    again = regions.find(module.graph, {middle: "for a reason"})
    assert names(again) == [["sin"], ["exp"]]
    assert again.reasons[middle] == "for a reason"


def _drawn(seed: int) -> Callable[[Tensor], Tensor]:
    """A function of elementwise operators, sums, and a write now and then."""
    rng = random.Random(seed)

    def function(x: Tensor) -> Tensor:
        values = [x.sin(), x.cos()]
        for _ in range(25):
            a, b = rng.choice(values), rng.choice(values)
            match rng.randrange(8):
                case 0:
                    values.append(a.cumsum(0))
                case 1:
                    values.append(torch.bernoulli(a.sigmoid()))
                case 2:
                    a.view(-1).add_(1)
                case _:
                    values.append(a * b)
        return sum(values)

    return function


def _reaches(start: set[Node], region: set[Node]) -> bool:
    """Whether a path leaves the region and enters it again."""
    stack = [u for n in start for u in n.users if u not in region]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in region:
            return True
        if node not in seen:
            seen.add(node)
            stack += node.users
    return False


def _acyclic(graph: Any, items: tuple[Region, ...]) -> bool:
    """Whether the regions, each as a whole, and all else have an order."""
    of = {n: i for i, region in enumerate(items) for n in region.nodes}
    drawn = regions.drawn_before(graph)
    needs: dict[Any, set[Any]] = {}
    for node in graph.nodes:
        sources = [*node.all_input_nodes, *filter(None, [drawn.get(node)])]
        mine = of.get(node, node)
        needs.setdefault(mine, set()).update(of.get(s, s) for s in sources)
        needs[mine].discard(mine)
    while needs:
        free = [k for k, sources in needs.items() if not sources & needs.keys()]
        if not free:
            return False
        for key in free:
            del needs[key]
    return True


@pytest.mark.parametrize("seed", range(12))
def test_regions_are_convex(seed: int) -> None:
    module = trace(lambda x: [_drawn(seed)(x)], (torch.rand(3),)).module
    result = regions.find(module.graph)
    assert _acyclic(module.graph, result.items)
    for region in result.items:
        assert not _reaches(set(region.nodes), set(region.nodes))
        place = {n: i for i, n in enumerate(module.graph.nodes)}
        first, last = place[region.nodes[0]], place[region.nodes[-1]]
        assert not any(
            regions.mutates(n) and first < place[n] < last for n in module.graph.nodes
        )
