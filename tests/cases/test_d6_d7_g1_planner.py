"""Cases D6, D7 and G1: bucket sizes, sharding a model that fits anyway, and from one node to two."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import meshwright
from meshwright.basics.quantities import GIB
from meshwright.files.plan_toml import read_plan
from meshwright.planner.buckets import knee, sweep

from .jobs import job

ONE_B = "layers = 16\nhidden = 2048\nheads = 16\nffn_hidden = 8192\nvocab = 50304\ngated = false"
PLAIN = "tp = 1\npp = 1\ncp = 1\nschedule = '1f1b'\nrecompute = 'none'"
BF16 = "[training]\nprecision = 'bf16'\ngradient_dtype = 'bf16'"


def plans(path: Path, top: int = 20) -> list[Any]:
    """The ranking."""
    found: list[Any] = meshwright.plan(path, top=top)["plans"]
    return found


def parameters(path: Path) -> float:
    from meshwright.files.resolve import read_setup
    from meshwright.model.parameters import total_parameters

    return float(total_parameters(read_setup(path).proposal.arch))


class TestD7:
    """A model of 1 B on four 40 GB cards, global batch 256, micro-batch 2: 32 micro-batches."""

    CLUSTER = "gpu = 'A100-40GB-SXM'\ngpus = 4\ngpus_per_node = 4"
    BATCH = "global = 256\nseq_len = 2048\nmicro_batch = 2"

    def test_d7_replicas_before_shards(self, tmp_path: Path) -> None:
        path = job(tmp_path, ONE_B, self.CLUSTER, self.BATCH, f"{BF16}\n[layout]\ndp = 4\n{PLAIN}")
        order = [one["layout"]["zero"] for one in plans(path)]
        assert order[0] in (0, 1)
        assert max(order.index(0), order.index(1)) < order.index(3)

    def test_d7_traffic_of_replicas_and_of_shards(self, tmp_path: Path) -> None:
        """Derived: 32 · 3 · 2 B · P · 3/4 of a fully sharded model, 2 · 2 B · P · 3/4 of a replicated one; with 1 B
        parameters 144 GB and 3 GB."""
        sent = {}
        for zero in (0, 3):
            rest = f"{BF16}\n[layout]\ndp = 4\nzero = {zero}\n{PLAIN}"
            path = job(tmp_path, ONE_B, self.CLUSTER, self.BATCH, rest)
            sent[zero] = plans(path, 1)[0]["traffic_gb"]["dp"]
            count = parameters(path) / 1e9
        assert sent[3] == pytest.approx(32 * 3 * 2 * count * 3 / 4, rel=1e-3)
        assert sent[0] == pytest.approx(2 * 2 * count * 3 / 4, rel=1e-3)
        assert sent[3] == pytest.approx(144 * count, rel=1e-3)
        assert sent[0] == pytest.approx(3 * count, rel=1e-3)

    def test_d7_a_model_that_does_not_fit_is_sharded(self, tmp_path: Path) -> None:
        """7 B on four 24 GB cards with 16 GB/s links: 16 B a parameter are 108 GB, so that states are sharded, and
        what travels is said."""
        cluster = "gpu = 'RTX3090'\ngpus = 4\ngpus_per_node = 4\nintra_node = 16\nmemory_gib = 40"
        path = job(tmp_path, "name = 'llama-2-7b'", cluster, "global = 64\nseq_len = 2048", BF16)
        best = plans(path, 1)[0]
        layout = best["layout"]
        assert layout["zero"] > 0 or layout["pp"] * layout["tp"] > 1
        assert sum(best["traffic_gb"].values()) > 0


class TestG1:
    """Two nodes of four devices, and what each sharding sends between them."""

    CLUSTER = "gpu = 'A100-40GB-SXM'\ngpus = 8\ngpus_per_node = 4\nintra_node = 'nvlink3'\ninter_node = 12.5"
    BATCH = "global = 32\nseq_len = 2048\nmicro_batch = 4"

    def best(self, folder: Path, layout: str) -> tuple[Any, float]:
        path = job(folder, ONE_B, self.CLUSTER, self.BATCH, f"{BF16}\n[layout]\ndp = 8\n{layout}\n{PLAIN}")
        return plans(path, 1)[0], parameters(path) / 1e9

    def test_g1_bytes_between_nodes(self, tmp_path: Path) -> None:
        """Derived: 3 collectives of 2 P bytes, 7/8 of each over a node's link, 5.3 P; shards inside nodes: 2 P."""
        full, count = self.best(tmp_path, "zero = 3")
        assert full["layout"]["shard_group"] is None or full["layout"]["shard_group"] == 4
        whole, _ = self.best(tmp_path, "zero = 3\nshard_group = 8")
        hybrid, _ = self.best(tmp_path, "zero = 3\nshard_group = 4")
        assert whole["between_nodes_gb"] == pytest.approx(3 * 2 * 7 / 8 * count, rel=1e-3)
        assert hybrid["between_nodes_gb"] == pytest.approx(2 * count, rel=1e-3)

    def test_g1_shards_inside_a_node_are_found_where_links_are_slow(self, tmp_path: Path) -> None:
        best, _ = self.best(tmp_path, "zero = 3")
        whole, _ = self.best(tmp_path, "zero = 3\nshard_group = 8")
        assert best["layout"]["shard_group"] == 4
        assert best["step_time_s"] < whole["step_time_s"]


class TestD6:
    """A model of 2.5 B on 32 ranks, buckets of 5e8 elements of two bytes."""

    def swept(self, folder: Path, sizes: tuple[float, ...]) -> Any:
        model = "layers = 32\nhidden = 2560\nheads = 32\nffn_hidden = 10240\nvocab = 1024\ngated = false"
        cluster = "gpu = 'A100-40GB-SXM'\ngpus = 32\ngpus_per_node = 8\ninter_node = 'ib-hdr'"
        layout = f"[layout]\ndp = 32\nzero = 1\n{PLAIN}\nstages = [['embed', 'layers.0-31', 'head']]"
        path = job(folder, model, cluster, "global = 256\nseq_len = 1024\nmicro_batch = 1", f"{BF16}\n{layout}")
        return sweep(read_plan(path), sizes), parameters(path)

    def test_d6_a_bucket_of_half_a_billion_elements(self, tmp_path: Path) -> None:
        (found,), count = self.swept(tmp_path, (5e8 * 2 / 2**20,))
        assert found.buffer_bytes / GIB == pytest.approx(0.93, abs=0.005)
        assert found.rounds == round(count / 5e8) == 5

    def test_d6_larger_buckets_take_memory_and_fewer_rounds(self, tmp_path: Path) -> None:
        sizes = (1.0, 5.0, 25.0, 100.0, 400.0, 1600.0)
        found, _ = self.swept(tmp_path, sizes)
        for less, more in pairwise(found):
            assert less.buffer_bytes < more.buffer_bytes
            assert less.rounds > more.rounds
            assert less.exchange_s >= more.exchange_s
            assert less.latency_share >= more.latency_share
        best = knee(found)
        assert best is not None
        assert best.rounds >= 2
        assert best.latency_share < 0.05
