from __future__ import annotations

import io
import os
import pickle
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import natural, read_checkpoint, read_torch


def test_tensors_and_plain_values_come_back_as_saved(tmp_path: Path) -> None:
    path = tmp_path / "m.pth"
    half = torch.tensor([1.5, -0.1], dtype=torch.bfloat16)
    torch.save(
        {"w": {"a": torch.ones(2, 3), "h": half}, "n": [1, None, "x"], 3: torch.arange(2)}, path
    )
    content = read_checkpoint(path).content
    assert content["w"]["a"].dtype == np.float32
    np.testing.assert_array_equal(content["w"]["h"], half.float().numpy())
    assert content["n"] == [1, None, "x"]
    assert content["3"].dtype == np.int64


def test_safetensors_come_in_natural_order(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({f"net.{n}.weight": torch.full((1,), float(n)) for n in (10, 9, 0)}, path)
    checkpoint = read_checkpoint(path)
    assert list(checkpoint.content) == ["net.0.weight", "net.9.weight", "net.10.weight"]
    assert not checkpoint.ordered
    assert natural("a.2") < natural("a.10") < natural("b.1")


class Attack:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("how", ["zip", "legacy", "plain"])
def test_code_in_a_pickle_is_named_and_never_run(tmp_path: Path, how: str) -> None:
    path, marker = tmp_path / "m.pth", tmp_path / "marker"
    content = {"a": Attack(marker)}
    if how == "plain":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=how == "zip")
    with pytest.raises(CimError, match=r"m\.pth: holds Python code \((posix|os|nt)\.system\)"):
        read_checkpoint(path)
    assert not marker.exists()


def test_a_whole_module_is_refused_with_what_to_do(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "m.pth")
    with pytest.raises(CimError, match=r"Linear.*save the state_dict, not the module"):
        read_checkpoint(tmp_path / "m.pth")


def test_networks_with_code_are_refused_with_what_works(tmp_path: Path) -> None:
    module, path = torch.nn.Linear(3, 2).eval(), tmp_path / "m.pth"
    torch.jit.script(module).save(path)
    works = r"; expected its numbers, .*state_dict.*, or both projectors as ONNX"
    with pytest.raises(CimError, match=r"m\.pth: is a TorchScript module .*" + works):
        read_checkpoint(path)
    exported = torch.export.export(module, (torch.zeros(2, 3),))
    torch.export.save(exported, tmp_path / "m.pt2")
    (tmp_path / "m.pt").write_bytes((tmp_path / "m.pt2").read_bytes())
    for name in ("m.pt2", "m.pt"):
        with pytest.raises(CimError, match=rf"{name}: is a program of torch\.export" + works):
            read_checkpoint(tmp_path / name)


def test_a_tensor_without_numbers_is_said_to_have_none(tmp_path: Path) -> None:
    huge = torch.empty(10**6, 10**6, device="meta")
    torch.save({"text": {"w": huge}}, tmp_path / "m.pth")
    with pytest.raises(CimError, match=r"text\.w is on the meta device, .* shape and no numbers"):
        read_checkpoint(tmp_path / "m.pth")


def test_numpy_values_are_refused_with_what_to_do(tmp_path: Path) -> None:
    torch.save({"coeff": np.ones(3)}, tmp_path / "m.pt")
    with pytest.raises(CimError, match=r"NumPy value \(numpy.*save it as a tensor"):
        read_checkpoint(tmp_path / "m.pt")


@pytest.mark.parametrize("zipped", [True, False])
def test_every_truncation_is_one_sentence(tmp_path: Path, zipped: bool) -> None:
    buffer = io.BytesIO()
    torch.save({"a": torch.ones(40, 3)}, buffer, _use_new_zipfile_serialization=zipped)
    whole, path = buffer.getvalue(), tmp_path / "m.pth"
    # The old format has no container: cut within a name, what is left is another, unknown name.
    message = "is truncated, corrupt" if zipped else "is truncated, corrupt|holds Python code"
    for size in {0, 1, 2, 3, 10, len(whole) - 1, *range(20, len(whole), 37)}:
        path.write_bytes(whole[:size])
        with pytest.raises(CimError, match=rf"m\.pth: ({message})"):
            read_checkpoint(path)


def test_truncated_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"a": torch.ones(40, 3)}, path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 23):
        path.write_bytes(whole[:size])
        with pytest.raises(CimError, match="truncated, corrupt"):
            read_checkpoint(path)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CimError, match=r"no\.pth: there is no such file"):
        read_checkpoint(tmp_path / "no.pth")
    for name in ("nothing", "no.onnx", "no.bin"):
        with pytest.raises(CimError, match=f"{name}: there is no such file"):
            read_checkpoint(tmp_path / name)
    (tmp_path / "bundle").mkdir()
    with pytest.raises(CimError, match="bundle: is a folder; expected a file"):
        read_checkpoint(tmp_path / "bundle")
    (tmp_path / "m.bin").touch()
    with pytest.raises(CimError, match=r'"\.bin" is not the suffix of a checkpoint: \.pth, \.pt'):
        read_checkpoint(tmp_path / "m.bin")
    (tmp_path / "d.pt").mkdir()
    with pytest.raises(CimError, match="is a folder"):
        read_checkpoint(tmp_path / "d.pt")
    torch.save(torch.ones(2), tmp_path / "t.pt")
    with pytest.raises(CimError, match=r"holds one tensor of shape \[2\]; expected a dictionary"):
        read_checkpoint(tmp_path / "t.pt")
    torch.save([1], tmp_path / "t.pt")
    with pytest.raises(CimError, match="holds a list"):
        read_checkpoint(tmp_path / "t.pt")
    torch.save({"a": {"z": torch.ones(2, dtype=torch.complex64)}}, tmp_path / "t.pt")
    with pytest.raises(CimError, match=r"a\.z is a tensor of torch.complex64"):
        read_torch(tmp_path / "t.pt")


def doubled() -> list[object]:
    value: list[object] = [1.0]
    for _ in range(40):
        value = [value, value]
    return value


def within_itself() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


HOSTILE = {
    "a list of itself twice, 40 deep": (doubled, "unfolds to more than 200,000 values"),
    "a list in itself": (within_itself, "nests containers more than 64 deep"),
    "a row shown a thousand million times": (
        lambda: torch.zeros(1).expand(10**9),
        "a takes 8,000,000,000 bytes of memory",
    ),
    "an integer of 2,000 bits": (lambda: 1 << 1999, "a is an integer of 2000 bits"),
    "a key that is no text": (lambda: {(1, 2): 3}, "a has a key that is a tuple; expected texts"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_take_all_memory_is_refused(name: str, tmp_path: Path) -> None:
    make, said = HOSTILE[name]
    torch.save({"a": make()}, tmp_path / "x.pth")
    assert (tmp_path / "x.pth").stat().st_size < 5000
    with pytest.raises(CimError, match=said):
        read_checkpoint(tmp_path / "x.pth")


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1000)}, tmp_path / "x.pth")
    with (
        zipfile.ZipFile(tmp_path / "x.pth") as plain,
        zipfile.ZipFile(tmp_path / "y.pth", "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for member in plain.infolist():
            archive.writestr(member.filename, plain.read(member))
    with pytest.raises(CimError, match=r"data\.pkl is compressed; expected members as torch\.save"):
        read_checkpoint(tmp_path / "y.pth")


def test_old_files_are_read_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "x.pth"
    torch.save({"a": torch.arange(3)}, file, _use_new_zipfile_serialization=False)
    with warnings.catch_warnings(action="error"):
        found = read_checkpoint(file).content
    np.testing.assert_array_equal(found["a"], [0, 1, 2])


def nested_key(depth: int) -> bytes:
    """A pickle of a dictionary whose key is a tuple of itself twice, so many deep."""
    made = pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickle.EMPTY_TUPLE + pickle.BINPUT + b"\0"
    for place in range(depth):
        twice = pickle.BINGET + bytes([place]) + pickle.TUPLE2
        made += twice + pickle.BINPUT + bytes([place + 1])
    return made + pickle.BININT1 + b"\1" + pickle.SETITEM + pickle.STOP


@pytest.mark.parametrize("zipped", [True, False])
def test_a_key_whose_hash_would_never_end_is_refused(zipped: bool, tmp_path: Path) -> None:
    file = tmp_path / "x.pth"
    file.write_bytes(nested_key(40))
    if zipped:
        torch.save({"a": torch.zeros(1)}, tmp_path / "plain.pth")
        with (
            zipfile.ZipFile(tmp_path / "plain.pth") as plain,
            zipfile.ZipFile(file, "w") as archive,
        ):
            for member in plain.infolist():
                is_content = member.filename.endswith("data.pkl")
                content = nested_key(40) if is_content else plain.read(member)
                archive.writestr(member.filename, content)
    with pytest.raises(CimError, match="nests tuples more than 8 deep; expected tensors"):
        read_checkpoint(file)


@pytest.mark.parametrize("opcode", [pickle.BYTEARRAY8, pickle.BINUNICODE8, pickle.BINBYTES8])
def test_a_length_beyond_the_file_is_not_allocated(opcode: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x.pth"
    file.write_bytes(pickle.PROTO + b"\x05" + opcode + (1 << 60).to_bytes(8, "little") + b"abc")
    with pytest.raises(CimError, match="is truncated, corrupt, or not a file that torch"):
        read_checkpoint(file)
