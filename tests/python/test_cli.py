"""The command line, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import etrt
import models
import pytest
import smollm2
import torch
from etrt import blob
from etrt.inspecting import as_json, inspect
from executorch.exir import to_edge
from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary


def etrt_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "etrt.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        timeout=300,
    )


def assert_one_line_error(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("etrt: ")]
    assert len(ours) == 1
    assert message in ours[0]


@pytest.fixture(scope="module")
def decoder_file(tmp_path_factory) -> Path:
    """A small decoder with the methods prefill and decode."""
    module = models.fill(models.Decoder())
    position = torch.zeros(1, dtype=torch.int64)
    exported = etrt.export(
        {"prefill": module, "decode": module},
        {
            "prefill": (torch.zeros(1, 4, dtype=torch.int64), position),
            "decode": (torch.zeros(1, 1, dtype=torch.int64), position),
        },
        {"prefill": ({1: torch.export.Dim("tokens", min=1, max=16)}, {}), "decode": None},
    )
    return exported.save(tmp_path_factory.mktemp("cli") / "decoder.pte")


def test_generate_prints_one_json_object():
    done = etrt_command(
        *(
            "generate",
            "--prompt",
            "What is the capital of France?",
            "--max-new-tokens",
            "24",
            "--greedy",
            "--json",
        ),
        *("--model", str(smollm2.program())),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["text"] == "The capital of France is Paris."
    assert result["stopped"] == "eos"
    assert (
        result["prompt_tokens"] == 37
    )  # The chat template with its default system message, and the question.
    assert result["tokens"][0] == 504
    assert result["prefill_tokens_per_second"] > 0
    assert result["decode_tokens_per_second"] > 0
    assert result["session_bytes"] == 30 * 2 * 3 * 2048 * 64 * 4
    assert result["kv_bytes_copied"] == 0
    weights = 134_515_008 * 4
    # One packed copy of the weights, besides what Python, torch and the caches take; not two.
    assert weights < result["peak_rss_bytes"] < 2 * weights + 700e6


def test_generate_raw_streams_text_alone():
    done = etrt_command(
        *("generate", "--prompt", "The capital of France is", "--raw", "--max-new-tokens", "3", "--greedy"),
        *("--model", str(smollm2.program())),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" Paris.")


def test_generate_says_that_a_prompt_is_too_long():
    done = etrt_command(
        "generate", "--prompt", "word " * 3000, "--greedy", "--json", "--model", str(smollm2.program())
    )
    assert_one_line_error(done, "capacity of 2048: shorten the prompt")


def test_demo_talks_twice_and_measures():
    done = etrt_command("demo", "--max-new-tokens", "12", "--model", str(smollm2.program()))
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    for row in ("prefill", "decode", "session 1", "session 2", "weights"):
        assert row in done.stdout
    copied = next(line for line in done.stdout.splitlines() if "KV bytes copied" in line)
    assert copied.split("│")[2].strip() == "0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["generate", "--prompt", "x", "--bad"], "No such option: --bad"),
        (["generate", "--prompt", "x", "--max-new-tokens", "0"], "max"),
        (["generate", "--prompt", "", "--greedy"], "--prompt is empty"),
        (["generate", "--prompt", "x", "--temperature", "-1"], "temperature is -1.0"),
        (["generate", "--prompt", "x", "--greedy", "--model", "none.pte"], "none.pte: no such file"),
        (["export", "smollm2", "-o", "no/such/folder/x.pte"], "no folder"),
        (["export", "smollm2", "-o", "x.pte", "--capacity", "9000"], "trained for 8192"),
        (["inspect", "none.pte"], "none.pte: no such file"),
        (["inspect", __file__], "is no ExecuTorch program"),
    ],
)
def test_bad_input_is_one_line(arguments, message):
    assert_one_line_error(etrt_command(*arguments), message)


def test_a_program_without_its_tokenizer_is_refused(decoder_file):
    done = etrt_command("generate", "--prompt", "x", "--greedy", "--model", str(decoder_file))
    assert_one_line_error(done, "decoder.tokenizer.json is missing")


def test_inspect_as_json(decoder_file):
    done = etrt_command("inspect", str(decoder_file), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["bytes"] == decoder_file.stat().st_size
    assert sorted(found["methods"]) == ["decode", "prefill"]
    assert len(found["delegates"]) == 2
    assert len({delegate["engine_key"] for delegate in found["delegates"]}) == 1
    for delegate in found["delegates"]:
        assert (delegate["backend"], delegate["blob_version"], delegate["engine"]) == (
            "TensorRTBackend",
            "TR03",
            "cpu",
        )
        assert delegate["engine_bytes"] == found["named_data"][delegate["engine_key"]] > 0
        assert [binding["name"] for binding in delegate["bindings"]][:2] == ["tokens", "position"]
        assert {(a["kind"], a["ownership"]) for a in delegate["aliases"]} == {("kv_cache_update", "session")}
        assert len(delegate["aliases"]) == len(delegate["states"]) == 4
        assert {state["bytes"] for state in delegate["states"]} == {1 * 2 * 32 * 8 * 4}
        assert delegate["position"]["input"] == "position"


def test_inspect_as_text(decoder_file):
    done = etrt_command("inspect", str(decoder_file))
    assert done.returncode == 0, done.stderr
    for part in (
        "blob TR03",
        "engine cpu",
        "state.layers.0.attention.cache.k",
        "kv_cache_update",
        "session",
        "in_place",
    ):
        assert part in done.stdout


def test_inspect_of_a_truncated_program(decoder_file, tmp_path):
    cut = tmp_path / "cut.pte"
    data = decoder_file.read_bytes()
    for length in (40, len(data) // 2, len(data) - 5000):
        cut.write_bytes(data[:length])
        with pytest.raises(etrt.EtrtError, match="truncated or damaged"):
            inspect(cut)
    assert_one_line_error(etrt_command("inspect", str(cut)), "truncated or damaged")


def test_doctor_finds_what_the_demo_needs():
    done = etrt_command("doctor")
    assert done.returncode == 0, done.stderr
    assert "etrt._core: runs engines: cpu" in done.stdout
    assert "etrt demo can run" in done.stdout


def test_doctor_fails_and_advises_where_something_is_missing(monkeypatch, capsys):
    import typer
    from etrt.cli import checks
    from etrt.cli.doctor_command import doctor_command

    missing = checks.Check("gguf", False, "not installed", "pip install 'gguf==0.19.0'")
    monkeypatch.setattr(checks, "all_checks", lambda: iter([missing]))
    with pytest.raises(typer.Exit) as end:
        doctor_command()
    assert end.value.exit_code == 1
    output = capsys.readouterr().out
    assert "missing  gguf: not installed" in output
    assert "-> pip install 'gguf==0.19.0'" in output


def test_doctor_compares_versions(monkeypatch):
    from etrt.cli import checks

    monkeypatch.setattr(checks.importlib.metadata, "version", lambda name: "0.0.1")
    check = checks._package("executorch")
    assert not check.good
    assert "0.0.1; etrt is built and tested with executorch==1.5.1" in check.found


@pytest.mark.parametrize(("version", "aliases"), [("TR01", []), ("TR02", [blob.Alias("out", "in")])])
def test_inspect_of_blobs_of_others(decoder_file, tmp_path, version, aliases):
    bindings = [blob.Binding("in", "float32", [4], True), blob.Binding("out", "float32", [4], False)]
    data = blob.write(blob.Blob(bindings=bindings, aliases=aliases, engine=b"plan"))
    file = deserialize_pte_binary(decoder_file.read_bytes())
    for delegate in file.program.backend_delegate_data:
        delegate.data = data
    other = tmp_path / "other.pte"
    other.write_bytes(bytes(serialize_pte_binary(file)))
    for delegate in as_json(inspect(other))["delegates"]:
        assert (delegate["blob_version"], delegate["engine"], delegate["engine_bytes"]) == (
            version,
            "tensorrt",
            4,
        )
        assert len(delegate["aliases"]) == len(aliases)


def test_inspect_of_a_program_without_this_delegate(tmp_path):
    traced = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
    plain = tmp_path / "plain.pte"
    plain.write_bytes(to_edge(traced).to_executorch().buffer)
    assert inspect(plain).ours() == []
    done = etrt_command("inspect", str(plain))
    assert done.returncode == 0, done.stderr
    assert "no delegate of TensorRTBackend" in done.stdout
