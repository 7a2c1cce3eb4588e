"""Config, and importing the package in places that lack something."""

from __future__ import annotations

import os
import pickle

import pytest
from forebay_fixture import python

import forebay
import forebay_torch
from forebay_torch import Config


def test_config_has_the_fields_and_defaults_of_dataflux() -> None:
    config = Config()
    assert (config.sort_listing_results, config.prefix) == (False, None)
    assert config.max_composite_object_size == 100_000_000
    assert config.num_processes == os.cpu_count()
    assert (config.max_listing_retries, config.threads_per_process) == (3, 1)
    assert config.disable_compose is False
    assert (config.list_retry_config, config.download_retry_config) == (None, None)
    assert pickle.loads(pickle.dumps(Config(prefix="a"))) == Config(prefix="a")


def test_config_refuses_an_unknown_argument() -> None:
    with pytest.raises(TypeError, match="prefiks"):
        Config(prefiks="a")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="max_composite_object_size"):
        Config(max_composite_object_size=-1)
    with pytest.raises(ValueError, match="max_listing_retries"):
        Config(max_listing_retries=-1)


def test_disable_compose_or_no_composite_size_means_single_reads() -> None:
    assert Config(disable_compose=True).batch_bytes == 0
    assert Config(max_composite_object_size=0).batch_bytes == 0
    assert Config().batch_bytes == 100_000_000


def test_without_torch_one_line_says_what_to_install() -> None:
    done = python("import sys; sys.modules['torch'] = None; import forebay_torch")
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode != 0
    assert last.startswith("ImportError: forebay_torch needs PyTorch: pip install torch")


def test_both_packages_must_have_one_version() -> None:
    assert forebay_torch.__version__ == forebay.__version__
    done = python("import forebay; forebay.__version__ = '9.9'; import forebay_torch")
    assert done.returncode != 0
    assert "does not go with forebay 9.9" in done.stderr


def test_all_names_are_there() -> None:
    for name in forebay_torch.__all__:
        assert getattr(forebay_torch, name)
    assert forebay_torch.IterDataset is forebay_torch.IterableDataset
