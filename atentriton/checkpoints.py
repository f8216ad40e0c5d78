"""torch.utils.checkpoint: what is computed again is computed as it was at first.

Comes in: the hook by which PyTorch leaves out what a checkpointed function would save.
Goes out: the same, which has the function run again under the `use` that held when it
ran first, or under none. PyTorch tells what the two runs save apart by its order alone:
with other operators the gradients would be wrong, and nothing would say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils import checkpoint


def install(as_now: Callable[[], Callable[[], Any]]) -> None:
    """Let checkpoints ask `as_now`, when they run first, for what makes the context in
    which they are to run again."""
    original = checkpoint._checkpoint_hook

    class Hook(original):
        def __init__(self, frame: Any) -> None:
            recompute, then = frame.recompute_fn, as_now()

            def again(*args: Any) -> Any:
                with then():
                    return recompute(*args)

            frame.recompute_fn = again
            super().__init__(frame)

    checkpoint._checkpoint_hook = Hook  # pyright: ignore[reportAttributeAccessIssue]
