"""The published JSON Schema: it accepts what the checks accept, and refuses most of what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.config.experiment_file import parse, read
from determined.experiment.config.json_schema import schema

ROOT = Path(__file__).parents[3]
EXAMPLES = [  # platform 1.11
    """
    # one trial
    name: mnist-const
    entrypoint: python3 train.py --epochs 2
    hyperparameters: {learning_rate: 0.1, global_batch_size: 64}
    searcher: {name: single, metric: validation_loss}
    """,
    """
    # adaptive search, checkpoints on a chosen disk
    name: mnist-search
    labels: [mnist, hp]
    entrypoint: python3 train.py
    hyperparameters:
      global_batch_size: 64
      optimizer:
        name: {type: categorical, vals: [sgd, adamw]}
        lr: {type: log, base: 10, minval: -4, maxval: -1}
      layers: {type: int, minval: 1, maxval: 4}
    searcher:
      name: adaptive_asha
      metric: validation_loss
      smaller_is_better: true
      max_trials: 16
      time_metric: epochs
      max_time: 16
      max_concurrent_trials: 4
    resources: {slots_per_trial: 1, max_slots: 4}
    max_restarts: 1
    reproducibility: {experiment_seed: 7}
    checkpoint_storage: {type: directory, container_path: /data/ckpt, save_trial_best: 1, save_trial_latest: 0}
    log_policies:
      - {name: CUDA OOM, pattern: ".*CUDA out of memory.*", action: cancel_retries}
    """,
    """
    # two-GPU data parallel
    entrypoint: python3 -m determined.launch.torch_distributed python3 train.py
    resources: {slots_per_trial: 2}
    searcher: {name: single, metric: accuracy, smaller_is_better: false, source_checkpoint_uuid: 5d0c}
    """,
    """
    # older and odd, and still fine
    x-anchors: {a: &a {type: double, minval: 0, maxval: 1e0, count: 3}}
    entrypoint: [python3, train.py]
    debug: null
    hyperparameters: {deep: {er: {p: *a}, nothing: null, list: [1, {any: thing}], c: {type: const, val: {a: 1}}}}
    searcher: {name: asha, metric: m, max_trials: 4, num_rungs: 2, max_length: {epochs: 8}, stop_once: true}
    environment: {image: {cuda: x}, environment_variables: {gpu: [A=1]}, x-note: mine}
    min_validation_period: {batches: 100}
    optimizations: {aggregation_frequency: 2, mixed_precision: O1}
    checkpoint_storage: {save_trial_best: 2}
    log_policies: [{pattern: a, action: {type: cancel_retries}}, {name: CUDA OOM}]
    bind_mounts: [{host_path: /data, container_path: data, read_only: true}]
    """,
    """
    entrypoint: x
    searcher: {name: optuna, metric: m, max_trials: 4, sampler: CmaEsSampler, sampler_args: {seed: 1}}
    """,
    """
    entrypoint: x
    searcher: {name: custom, metric: m, method: "search:Mine", threshold: 0.1}
    checkpoint_storage: {type: s3, bucket: b}
    """,
]
WRONG = [
    "searcher: {name: single, metric: m}",
    "entrypoint: x",
    "{entrypoint: x, searcher: {name: rnadom, metric: m}}",
    "{entrypoint: x, searcher: {metric: m}}",
    "{entrypoint: x, searcher: {name: random, metric: m}}",
    "{entrypoint: x, searcher: {name: single, metric: m, max_trials: 3}}",
    "{entrypoint: x, searcher: {name: adaptive_asha, metric: m, max_trials: 3}}",
    "{entrypoint: x, searcher: {name: adaptive_simple, metric: m, max_trials: 3}}",
    "{entrypoint: x, searcher: {name: single, metric: null}}",
    "{entrypoint: '', searcher: {name: single, metric: m}}",
    "{entrypoint: x, searchr: 1, searcher: {name: single, metric: m}}",
    "{entrypoint: x, resources: {slots: 1}, searcher: {name: single, metric: m}}",
    "{entrypoint: x, resources: {priority: 100}, searcher: {name: single, metric: m}}",
    "{entrypoint: x, max_restarts: '5', searcher: {name: single, metric: m}}",
    "{entrypoint: x, checkpoint_policy: worst, searcher: {name: single, metric: m}}",
    "{entrypoint: x, checkpoint_storage: {type: s3}, searcher: {name: single, metric: m}}",
    "{entrypoint: x, checkpoint_storage: {bucket: b}, searcher: {name: single, metric: m}}",
    "{entrypoint: x, hyperparameters: {a: {b: {type: adam}}}, searcher: {name: single, metric: m}}",
    "{entrypoint: x, hyperparameters: {a: {type: int, minval: 1}}, searcher: {name: single, metric: m}}",
    "{entrypoint: x, hyperparameters: {a: {type: const, val: 3, step: 1}}, searcher: {name: single, metric: m}}",
    "{entrypoint: x, hyperparameters: {a: {type: categorical, vals: []}}, searcher: {name: single, metric: m}}",
    "{entrypoint: x, min_validation_period: {batches: 1, epochs: 1}, searcher: {name: single, metric: m}}",
    "{entrypoint: x, log_policies: [{name: a, action: restart}], searcher: {name: single, metric: m}}",
]


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    made = schema()
    Draft202012Validator.check_schema(made)
    return Draft202012Validator(made)


def mistakes(validator: Draft202012Validator, values: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(values)]


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_valid(validator: Draft202012Validator, text: str) -> None:
    """platform 1.11: the examples pass the checks and the schema, as written and as the effective configuration."""
    values = parse(text).values
    config = ExperimentConfig.parse(values)
    assert mistakes(validator, values) == []
    assert mistakes(validator, config.effective()) == []


def test_the_examples_of_the_repository_are_valid(validator: Draft202012Validator) -> None:
    """style.md 12: what we show works."""
    for path in sorted(ROOT.glob("examples/**/*.yaml")):
        values = read(path).values
        ExperimentConfig.parse(values)
        assert mistakes(validator, values) == [], path


@pytest.mark.parametrize("text", WRONG)
def test_wrong_ones_are_refused_by_both(validator: Draft202012Validator, text: str) -> None:
    """An editor that knows the schema marks what the command would refuse."""
    values = parse(text).values
    with pytest.raises(ValueError, match="<config>"):
        ExperimentConfig.parse(values)
    assert mistakes(validator, values)


def test_the_published_schema_is_current() -> None:
    """docs/experiment.schema.json is what `det experiment schema` prints; if not: run it again."""
    published = json.loads((ROOT / "docs" / "experiment.schema.json").read_text())
    assert published == schema(), "write it again: det experiment schema > docs/experiment.schema.json"


def test_editors_can_explain_every_key() -> None:
    """Every key has a description, so that an editor has something to show."""
    made = schema()
    for where in (made, *made["$defs"].values()):
        for key, field in where.get("properties", {}).items():
            assert field.get("description") or field.get("$ref"), key


def test_the_file_of_the_guide_is_valid(validator: Draft202012Validator) -> None:
    """style.md 12: the file that the guide shows passes."""
    text = (ROOT / "docs" / "guides" / "experiment-config.md").read_text()
    values = parse(text.split("```yaml\n")[1].split("```")[0]).values
    assert ExperimentConfig.parse(values).warnings == []
    assert mistakes(validator, values) == []
