"""The section `checkpoint_storage`: one class for each type of storage. `artifacts` opens them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator

from determined._home import data_directory
from determined.artifacts.config import BUCKET, normal_prefix
from determined.experiment.config.sections import LARGEST, Section, ignored


def default_storage() -> dict[str, Any]:
    """Return the storage of checkpoints where none is configured."""
    return {"type": "directory", "container_path": str(data_directory() / "checkpoints")}


def _absolute(value: str) -> str:
    """Return `value` if it is absolute: the working directory of a trial does not last."""
    if not Path(value).is_absolute():
        raise ValueError(f"is {value!r}, and has to be an absolute path, such as /data/checkpoints.")
    return value


def _bucket_name(value: str) -> str:
    if not BUCKET.fullmatch(value.partition("/")[0]):
        raise ValueError(f"is {value!r}, which cannot be a bucket. Write its name alone, such as my-models.")
    return value


Absolute = Annotated[str, AfterValidator(_absolute)]
BucketName = Annotated[str, AfterValidator(_bucket_name)]


class Storage(Section):
    """What all types have: which checkpoints are kept."""

    save_experiment_best: int = Field(
        default=0, ge=0, le=LARGEST, description="Best checkpoints kept of the experiment."
    )
    save_trial_best: int = Field(default=1, ge=0, le=LARGEST, description="Best checkpoints kept of each trial.")
    save_trial_latest: int = Field(default=1, ge=0, le=LARGEST, description="Newest checkpoints kept of each trial.")


class Directory(Storage):
    """A directory that holds one directory for each checkpoint."""

    REQUIRED = ("container_path",)
    type: Literal["directory"] = "directory"
    container_path: Absolute | None = Field(default=None, description="Absolute path of the directory.")


class SharedFs(Storage):
    """A directory at `host_path/storage_path`."""

    REQUIRED = ("host_path",)
    type: Literal["shared_fs"] = "shared_fs"
    host_path: Absolute | None = Field(default=None, description="Absolute path of the file system.")
    storage_path: str | None = Field(default=None, description="Directory in it: relative, or inside host_path.")
    propagation: Any = ignored()
    container_path: Any = ignored()
    checkpoint_path: Any = ignored("use storage_path.")
    tensorboard_path: Any = ignored()


class Bucket(Storage):
    """What buckets have."""

    prefix: str | None = Field(default=None, description="Path inside; no '..'.")
    temp_dir: str | None = Field(default=None, description="Where files are kept on their way.")

    @field_validator("prefix")
    @classmethod
    def _normal(cls, value: str | None) -> str | None:
        try:
            return normal_prefix(value) or None
        except ValueError:
            raise ValueError(
                f"is {value!r}, and has to be a path without '..'. Write it out, such as runs/mnist."
            ) from None


class S3(Bucket):
    """An S3 bucket, or one of another service that speaks S3."""

    REQUIRED = ("bucket",)
    type: Literal["s3"] = "s3"
    bucket: BucketName | None = Field(default=None, description="Name of the bucket.")
    access_key: str | None = Field(default=None, repr=False, description="Absent: the credentials of the environment.")
    secret_key: str | None = Field(default=None, repr=False, description="Goes with access_key.")
    endpoint_url: str | None = Field(default=None, description="Address of the service, if it is not Amazon's.")


class Gcs(Bucket):
    """A Google Cloud Storage bucket."""

    REQUIRED = ("bucket",)
    type: Literal["gcs"] = "gcs"
    bucket: BucketName | None = Field(default=None, description="Name of the bucket.")


class Azure(Bucket):
    """An Azure Blob Storage container; `connection_string`, or `account_url` with `credential`."""

    REQUIRED = ("container",)
    type: Literal["azure"] = "azure"
    container: str | None = Field(default=None, description="Name of the container.")
    connection_string: str | None = Field(default=None, repr=False, description="One way to authenticate.")
    account_url: str | None = Field(default=None, description="The other way to authenticate.")
    credential: str | None = Field(default=None, repr=False, description="Goes with account_url.")


def kind(value: Any) -> Any:
    """Return the tag of the class that reads this section."""
    return value.get("type", "directory") if isinstance(value, dict) else getattr(value, "type", "directory")


STORAGE: dict[str, type[Storage]] = {
    "directory": Directory, "shared_fs": SharedFs, "s3": S3, "gcs": Gcs, "azure": Azure,
}  # fmt: skip

CheckpointStorage = Annotated[
    Annotated[Directory, Tag("directory")]
    | Annotated[SharedFs, Tag("shared_fs")]
    | Annotated[S3, Tag("s3")]
    | Annotated[Gcs, Tag("gcs")]
    | Annotated[Azure, Tag("azure")],
    Discriminator(kind),
]
