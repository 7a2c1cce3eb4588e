"""Map-style datasets against a real cluster."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from forebay_fixture import Cluster
from torch.utils.data import DataLoader

import forebay
from forebay_torch import BaseMapDataset, Config, DynamicBatchSampler, MapDataset

CONTENTS = {f"train/{i:03}": os.urandom(100 + i) for i in range(60)}
NAMES = sorted(CONTENTS)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many([*CONTENTS.items(), ("val/0", b"val")])
    return bucket


class Upper(BaseMapDataset):
    """Reads through the objects, as a dataset written for other libraries does."""

    def __getitem__(self, index: int) -> tuple[str, bytes, bytes]:
        item = self.get_obj_list()[index]
        return item.name, item.get().read_all(), item.get_reader(byte_range=(0, 4)).read_all()


def test_a_sample_is_name_and_content_and_an_index_out_of_bounds_says_so(
    filled: forebay.Bucket
) -> None:
    dataset = MapDataset(ais_source_list=filled, prefix_map={filled: "train/"})
    assert len(dataset) == 60
    assert dataset[7] == (NAMES[7], CONTENTS[NAMES[7]])
    assert dataset[-1] == (NAMES[-1], CONTENTS[NAMES[-1]])
    assert list(dataset) == [(name, CONTENTS[name]) for name in NAMES]
    assert [item.name for item in dataset.get_obj_list()] == NAMES
    assert dataset.get_obj_list()[-1].name == NAMES[-1]
    for index in (60, -61):
        with pytest.raises(IndexError, match="^index must be in bounds of dataset$"):
            dataset[index]
        with pytest.raises(IndexError, match="^index must be in bounds of dataset$"):
            dataset.get_obj_list()[index]


def test_an_index_may_be_negative_or_of_numpy_or_torch_and_a_loop_ends(
    filled: forebay.Bucket
) -> None:
    numpy = pytest.importorskip("numpy")
    dataset = MapDataset(filled)
    for index in (numpy.int64(3), torch.tensor(3), torch.arange(5)[3]):
        assert dataset[index] == (NAMES[3], CONTENTS[NAMES[3]])
        assert dataset.__getitems__([index])[0][0] == NAMES[3]
    with pytest.raises(TypeError):
        dataset[1.5]  # type: ignore[index]


def test_objects_are_names_and_sizes_from_one_listing(
    filled: forebay.Bucket, cluster: Cluster
) -> None:
    dataset = MapDataset(sources=filled)

    def requests() -> float:
        return sum(cluster.count("forebay_http_requests_total", api=api) for api in ("v1", "api"))

    before = requests()
    assert dataset.objects[0] == (NAMES[0], len(CONTENTS[NAMES[0]]))
    assert dataset.objects[-1] == ("val/0", 3)
    assert [name for name, _ in dataset.objects[10:12]] == NAMES[10:12]
    assert [name for name, _ in dataset.objects] == [*NAMES, "val/0"]
    assert requests() == before, "reading the listing must not send requests"


def test_the_dataflux_form_gives_what_data_format_fn_makes_of_bytes(
    client: forebay.Client, filled: forebay.Bucket
) -> None:
    dataset = MapDataset(
        project_name="project",
        bucket_name=filled.name,
        config=Config(prefix="train/"),
        data_format_fn=len,
        storage_client=client,
    )
    sizes = [len(CONTENTS[name]) for name in NAMES]
    assert [dataset[i] for i in range(60)] == sizes
    assert dataset.__getitems__([5, 3]) == [sizes[5], sizes[3]]
    assert dataset.objects[0][0] == NAMES[0]
    plain = MapDataset(project_name="p", bucket_name=filled.uri, config=Config(prefix="val"))
    assert list(plain) == [b"val"]
    both = MapDataset(filled, data_format_fn=len, return_name=True)
    assert both[0] == (NAMES[0], sizes[0])


@pytest.mark.parametrize("config", [Config(), Config(disable_compose=True)])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_delivers_everything_once(
    filled: forebay.Bucket, workers: int, config: Config
) -> None:
    dataset = MapDataset(filled, prefix_map={filled: "train/"}, config=config)
    loader = DataLoader(dataset, batch_size=7, shuffle=True, num_workers=workers)
    got = [pair for batch in loader for pair in zip(*batch, strict=True)]
    assert sorted(got) == [(name, CONTENTS[name]) for name in NAMES]


def test_spawned_workers_deliver_everything(filled: forebay.Bucket) -> None:
    dataset = MapDataset(filled, data_format_fn=len)
    loader = DataLoader(
        dataset, batch_size=16, num_workers=1, multiprocessing_context="spawn", collate_fn=list
    )
    assert sum(loader, []) == [*(len(CONTENTS[name]) for name in NAMES), 3]


@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("kind", [MapDataset, Upper])
def test_a_batch_of_a_loader_is_one_request_per_owning_target(
    filled: forebay.Bucket, cluster: Cluster, workers: int, kind: type[BaseMapDataset]
) -> None:
    dataset = kind(filled, prefix_map={filled: "train/"})

    def counts() -> tuple[float, float]:
        return (
            cluster.count("forebay_http_requests_total", op="batch"),
            cluster.count("forebay_batch_entries_total"),
        )

    requests, entries = counts()
    batches = list(DataLoader(dataset, batch_size=20, num_workers=workers, collate_fn=list))
    assert [sample[:2] for batch in batches for sample in batch] == [
        (name, CONTENTS[name]) for name in NAMES
    ]
    after_requests, after_entries = counts()
    assert after_entries - entries == 60
    # 3 batches of 20, each on all 3 targets; once in a thousand times one of them owns none of 20.
    assert 7 <= after_requests - requests <= 9


def test_a_small_composite_size_makes_more_and_smaller_requests(
    filled: forebay.Bucket, cluster: Cluster
) -> None:
    config = Config(max_composite_object_size=350)
    dataset = MapDataset(filled, prefix_map={filled: "train/"}, config=config)
    before = cluster.count("forebay_batch_entries_total")
    assert [bytes(c) for c in dataset.fetch(range(9))] == [CONTENTS[n] for n in NAMES[:9]]
    assert cluster.count("forebay_batch_entries_total") - before == 9


def test_custom_map_datasets_read_through_their_objects(filled: forebay.Bucket) -> None:
    dataset = Upper(filled, {filled: ["train/00"]})
    expected = [(name, CONTENTS[name], CONTENTS[name][:4]) for name in NAMES[:10]]
    assert [dataset[i] for i in range(10)] == expected
    assert dataset.__getitems__([3, -1, 3]) == [expected[3], expected[9], expected[3]]
    assert dataset.__getitems__([]) == []
    assert [bytes(c) for c in dataset.fetch([2, -1])] == [expected[2][1], expected[9][1]]
    with pytest.raises(TypeError, match="abstract"):
        BaseMapDataset(filled)  # type: ignore[abstract]


def view_of(content: Any) -> memoryview:
    return memoryview(content)[1:]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_contents_without_a_copy_leave_workers(filled: forebay.Bucket, context: str) -> None:
    options: Any = {"num_workers": 1, "multiprocessing_context": context, "timeout": 60}
    dataset = MapDataset(filled, {filled: "train/00"}, zero_copy=True)
    loader = DataLoader(dataset, batch_size=4, **options)
    got = {n: bytes(c) for names, views in loader for n, c in zip(names, views, strict=True)}
    assert got == {name: CONTENTS[name] for name in NAMES[:10]}
    if context == "fork":
        cut = MapDataset(filled, {filled: "train/00"}, data_format_fn=view_of)
        views = sum(DataLoader(cut, batch_size=4, collate_fn=list, **options), [])
        assert [bytes(view) for view in views] == [CONTENTS[name][1:] for name in NAMES[:10]]


def test_one_sampler_batch_one_sample_list(filled: forebay.Bucket) -> None:
    dataset = MapDataset(filled, prefix_map={filled: "train/"})
    sampler = DynamicBatchSampler(dataset, max_batch_size=1000, shuffle=True)
    seen = []
    for names, contents in DataLoader(dataset, batch_sampler=sampler, num_workers=2):
        assert sum(map(len, contents)) <= 1000
        seen += names
    assert sorted(seen) == NAMES


def test_an_exception_of_data_format_fn_keeps_its_type_and_names_the_object(
    filled: forebay.Bucket
) -> None:
    def fail(content: bytes) -> Any:
        raise KeyError("broken image")

    dataset = MapDataset(filled, data_format_fn=fail)
    with pytest.raises(KeyError) as caught:
        dataset[2]
    assert NAMES[2] in "".join(caught.value.__notes__)
    with pytest.raises(KeyError, match=NAMES[0]):
        next(iter(DataLoader(dataset, batch_size=4, num_workers=1)))


def test_an_object_that_vanished_is_raised_by_name_from_a_worker(filled: forebay.Bucket) -> None:
    dataset = MapDataset(filled)
    filled.object(NAMES[1]).delete()
    with pytest.raises(forebay.NotFound, match=NAMES[1]):
        dataset[1]
    for workers in (0, 1):
        with pytest.raises(forebay.NotFound, match=NAMES[1]):
            next(iter(DataLoader(dataset, batch_size=4, num_workers=workers)))


def test_a_dataset_pickles_and_is_equal(filled: forebay.Bucket) -> None:
    dataset = MapDataset(filled, prefix_map={filled: "train/"})
    back = pickle.loads(pickle.dumps(dataset))
    assert back.objects == dataset.objects
    assert back.__getitems__([0, 1]) == dataset.__getitems__([0, 1])


def test_zero_copy_hands_out_views_of_what_was_received(filled: forebay.Bucket) -> None:
    name, view = MapDataset(filled, zero_copy=True)[0]
    assert isinstance(view, memoryview)
    assert view == CONTENTS[name]


def test_a_batch_of_views_is_views(filled: forebay.Bucket) -> None:
    dataset = MapDataset(filled, prefix_map={filled: "train/"}, zero_copy=True)
    names, views = next(iter(DataLoader(dataset, batch_size=3)))
    assert all(isinstance(view, memoryview) for view in views)
    assert [bytes(view) for view in views] == [CONTENTS[name] for name in names]


def test_contradictions_are_refused(filled: forebay.Bucket) -> None:
    with pytest.raises(ValueError, match="MapDataset needs at least one source"):
        MapDataset([])
    with pytest.raises(TypeError, match="one of"):
        MapDataset(filled, sources=filled)
    with pytest.raises(TypeError, match="one of"):
        MapDataset(filled, bucket_name="b")
    with pytest.raises(TypeError, match="bucket_name"):
        MapDataset(filled, config=Config(prefix="x"))
    with pytest.raises(TypeError, match="config.prefix"):
        MapDataset(bucket_name="b", prefix_map={filled: "x"})
    with pytest.raises(forebay.NotFound, match="no-such"):
        MapDataset("ais://no-such")


def test_a_bucket_that_is_not_cached_yet_is_read_through(
    client: forebay.Client, cluster: Cluster
) -> None:
    folder = cluster.folder_root / "corpus"
    (folder / "a").mkdir(parents=True)
    for i in range(30):
        (folder / "a" / f"{i:02}").write_bytes(bytes([i]) * (i + 1))
    bucket = client.bucket("corpus").create(folder=Path(folder))
    try:
        dataset = MapDataset(bucket)
        expected = [(f"a/{i:02}", bytes([i]) * (i + 1)) for i in range(30)]

        def reads() -> float:
            return cluster.count("forebay_backend_requests_total", op="get")

        start = reads()
        assert dataset.__getitems__(range(30)) == expected
        assert reads() - start == 30
        hits = cluster.count("forebay_get_bytes_total", result="hit")
        assert dataset.__getitems__(range(30)) == expected
        assert reads() - start == 30
        warm = cluster.count("forebay_get_bytes_total", result="hit") - hits
        assert warm == dataset.objects.total_size
    finally:
        bucket.delete()


@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_a_function_that_does_not_pickle_is_named_before_any_worker_starts(
    filled: forebay.Bucket,
) -> None:
    dataset = MapDataset(filled, data_format_fn=lambda content: content)
    loader = DataLoader(dataset, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(TypeError, match="data_format_fn=.*cannot be pickled.*top of a module"):
        iter(loader)
    assert len(list(DataLoader(dataset, num_workers=1, collate_fn=list))) == len(dataset)
