"""The gradient of connectionist temporal classification, differentiable again.

Source: A. Graves, S. Fernandez, F. Gomez, J. Schmidhuber, "Connectionist temporal
classification: labelling unsegmented sequence data with recurrent neural networks",
ICML 2006: forward and backward variables over the targets with a blank before, between
and after the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from atentriton import gate

Lengths = Sequence[int] | Tensor


def _ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    neg_log_likelihood: Tensor,
    log_alpha: Tensor,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """The gradient of `log_probs`, T x N x C, from that of the N losses.

    It is that of ATen's operator, which has no derivative: where one may be asked for,
    it comes from operators that have. As there, `log_probs` are taken to be normalized:
    the gradient of c at time t is p(c) less the share of the paths through c then.
    """
    lengths = input_lengths, target_lengths
    if not gate.records((grad, log_probs)):
        losses = neg_log_likelihood, log_alpha
        found = torch.ops.aten._ctc_loss_backward(
            grad, log_probs, targets, *lengths, *losses, blank, zero_infinity
        )
        # No path goes there, and ATen's operator takes one infinity from another.
        return found.masked_fill(log_probs == -torch.inf, 0)
    device = log_probs.device
    times, sizes = (torch.as_tensor(n, device=device).long() for n in lengths)
    labels = _with_blanks(targets.long().to(device), sizes, blank)
    paths, likelihood = _paths(log_probs, labels, times, 2 * sizes + 1)
    impossible = (likelihood == -torch.inf)[:, None]
    shares = (paths - likelihood[:, None].masked_fill(impossible, 0)).exp()
    index = labels.expand(shares.shape)
    by_label = torch.zeros_like(log_probs).scatter_add(2, index, shares)
    found = grad[:, None] * (log_probs.exp() - by_label)
    found = found.masked_fill(impossible, 0.0 if zero_infinity else torch.nan)
    return found.masked_fill(~_before(times, len(log_probs))[:, :, None], 0)


def _before(times: Tensor, count: int) -> Tensor:
    """Whether each time of `count` is within each input: T x N."""
    return torch.arange(count, device=times.device)[:, None] < times


def _with_blanks(targets: Tensor, sizes: Tensor, blank: int) -> Tensor:
    """The labels of each state, N x S, from targets padded or one after the other."""
    if targets.ndim == 1:
        parts = list(targets.split(sizes.tolist()))
        targets = torch.nn.utils.rnn.pad_sequence(parts, True, float(blank))
    labels = targets.new_full((len(targets), 2 * targets.shape[1] + 1), blank)
    labels[:, 1::2] = targets
    within = torch.arange(labels.shape[1], device=labels.device) < 2 * sizes[:, None]
    return torch.where(within, labels, blank)


def _paths(
    log_probs: Tensor, labels: Tensor, times: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """The logarithms of the probability of all paths through each state at each time,
    T x N x S, and of that of all paths, N; `states` has how many each target has."""
    count, number = len(log_probs), labels.shape[1]
    emitted = log_probs.gather(2, labels.expand(count, -1, -1))
    state = torch.arange(number, device=labels.device)
    # Two states on goes from a label to another one, over the blank between them.
    skips = (state % 2 == 1) & (labels != pad(labels, (2, 0), value=-1)[:, :-2])
    start = (state < 2) & (state < states[:, None])
    end = (state < states[:, None]) & (state >= states[:, None] - 2)
    never = -torch.inf

    forward = [emitted[0].masked_fill(~start, never)]
    for t in range(1, count):
        last = forward[-1]
        one = pad(last, (1, 0), value=never)[:, :-1]
        two = pad(last, (2, 0), value=never)[:, :-2].masked_fill(~skips, never)
        forward.append(_log_sum(torch.stack((last, one, two))) + emitted[t])

    ends = torch.zeros_like(emitted[0]).masked_fill(~end, never)
    backward = [torch.where((times == count)[:, None], ends, never)]
    for t in range(count - 1, 0, -1):
        after = backward[-1] + emitted[t]
        one = pad(after, (0, 1), value=never)[:, 1:]
        two = pad(after.masked_fill(~skips, never), (0, 2), value=never)[:, 2:]
        here = _log_sum(torch.stack((after, one, two)))
        backward.append(torch.where((times == t)[:, None], ends, here))

    through = torch.stack(forward) + torch.stack(backward[::-1])
    return through, _log_sum(through[0].T)


def _log_sum(values: Tensor) -> Tensor:
    """log(sum(exp(values))) over the first dimension; all may be -inf, and derivatives
    stay finite then."""
    largest = values.detach().amax(0)
    largest = largest.masked_fill(largest == -torch.inf, 0)
    total = (values - largest).exp().sum(0)
    nothing = total == 0
    logarithm = total.masked_fill(nothing, 1).log() + largest
    return logarithm.masked_fill(nothing, -torch.inf)


FUNCTIONS: dict[str, Callable[..., Any]] = {"_ctc_loss_backward": _ctc_loss_backward}
