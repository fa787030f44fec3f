"""An old import path whose subject is left out: it says what to use instead."""

raise ImportError(
    "determined.keras is left out: what trains here is PyTorch. Keep a Keras model's own loop, and report from it "
    "through determined.core.init()."
)
