"""The code snapshot of an experiment."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from determined.client._files import code_name
from determined.errors import Refused
from determined.experiment.submission import packed_code
from determined.server.answers.checkpoints import FileAnswer
from determined.server.answers.code import CodeFile, CodeTree
from determined.server.depends import Client
from determined.server.rules import READS

router = APIRouter(tags=["code"])

MOST_FILES = 5000  # that a tree shows


@router.get("/experiments/{experiment_id}/code", **READS)
def tree(client: Client, experiment_id: int) -> CodeTree:
    """Return the files of its snapshot."""
    try:
        content = client.get_experiment(experiment_id).packed_code()
    except Refused as reason:
        return CodeTree(files=[], said=str(reason))
    sizes = packed_code.sizes(content)
    shown = [FileAnswer(path=path, size=size) for path, size in list(sizes.items())[:MOST_FILES]]
    more = f"The first {MOST_FILES:,} of {len(sizes):,} files are shown." if len(sizes) > MOST_FILES else ""
    return CodeTree(files=shown, said=more if sizes else "The snapshot holds no files.")


@router.get("/experiments/{experiment_id}/code/file", **READS)
def file(client: Client, experiment_id: int, path: Annotated[str, Query(max_length=2000)]) -> CodeFile:
    """Return the text of one file."""
    found = packed_code.read(client.get_experiment(experiment_id).packed_code(), path)
    return CodeFile(path=found.path, size=found.size, text=found.text, is_whole=found.is_whole, is_text=found.is_text)


@router.get("/experiments/{experiment_id}/code/download", response_class=Response, **READS)
def download(client: Client, experiment_id: int) -> Response:
    """Return the snapshot as .tar.gz."""
    content = client.get_experiment(experiment_id).packed_code()
    attached = {"Content-Disposition": f'attachment; filename="{code_name(experiment_id)}"'}
    return Response(content, media_type="application/gzip", headers=attached)
