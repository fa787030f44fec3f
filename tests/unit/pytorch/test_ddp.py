"""What a trial may ask of DDP, as far as no other rank is needed; real ranks are in test_ddp_corners_*.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from determined import errors
from determined.pytorch.parallel import ddp


@pytest.mark.parametrize(
    ("wish", "type_"),
    [(None, None), (False, None), (True, torch.float16), (torch.bfloat16, torch.bfloat16)],
)
def test_what_gradients_travel_in(wish: Any, type_: torch.dtype | None) -> None:
    """3.3: True is float16, as ever; a type is that type."""
    assert ddp.compression_type(wish) is type_


@pytest.mark.parametrize("wish", [torch.int8, torch.float32, "fp16"])
def test_what_they_cannot_travel_in(wish: Any) -> None:
    """One sentence with the value and what to type instead."""
    with pytest.raises(ValueError, match=r"use True for float16, or torch.bfloat16"):
        ddp.compression_type(wish)


def test_options() -> None:
    """W13: DDP's own keywords pass; another one is refused, with the nearest or with all of them."""
    ddp.check_options(["find_unused_parameters", "static_graph", "gradient_as_bucket_view", "bucket_cap_mb"])
    with pytest.raises(errors.InvalidExperimentException, match=r"'staticgraph'.* Did you mean 'static_graph'"):
        ddp.check_options(["bucket_cap_mb", "staticgraph"])
    with pytest.raises(errors.InvalidExperimentException, match=r"'module'.* It takes .*static_graph"):
        ddp.check_options(["module"])
