"""The `determined.pytorch` training API, standing on its own. Names only; each is resolved on first use."""

from typing import TYPE_CHECKING

from determined import _lazy, _left_out

if TYPE_CHECKING:  # editors and type checkers see ordinary imports
    from determined import client as client
    from determined import core as core
    from determined import errors as errors
    from determined import experimental as experimental
    from determined import pytorch as pytorch
    from determined._import_path import import_from_path as import_from_path
    from determined._info import ClusterInfo as ClusterInfo
    from determined._info import RendezvousInfo as RendezvousInfo
    from determined._info import ResourcesInfo as ResourcesInfo
    from determined._info import TrialInfo as TrialInfo
    from determined._info import get_cluster_info as get_cluster_info
    from determined._types import LOG_FORMAT as LOG_FORMAT
    from determined._version import __version__ as __version__
    from determined.errors import InvalidHP as InvalidHP
    from determined.pytorch._pytorch_context import TrialContext as TrialContext
    from determined.pytorch._trial import LegacyTrial as LegacyTrial

__getattr__, __dir__, __all__ = _lazy.exports(
    __name__,
    rooms=("client", "core", "errors", "experimental", "pytorch"),
    names={
        "_import_path": "import_from_path",
        "_info": "ClusterInfo RendezvousInfo ResourcesInfo TrialInfo get_cluster_info",
        "_types": "LOG_FORMAT",
        "_version": "__version__",
        "errors": "InvalidHP",
        "pytorch._pytorch_context": "TrialContext",
        "pytorch._trial": "LegacyTrial",
    },
)

_left_out.register()
