# SPDX-License-Identifier: MIT
"""Forms of the test models that no package holds: made once by llama-quantize from the form that is there, beside it.

A form made from one that was quantized already is worse text than one made from the original; arithmetic, bytes and
layout, which is what is measured, are the same."""

import subprocess

from support import kit

SOURCES = {
    "smollm2": kit.harness.SMOLLM2,
    "gemma3": kit.harness.GEMMA3,
    "random-1.1b": kit.MODELS / "random-1.1b-q4_k_m.gguf",
}


def path_of(name, form):
    """The file of a model (a key of SOURCES) in a form, as Q4_0 or Q4_K_M."""
    source = SOURCES[name]
    stem = source.stem.rsplit("-", 1)[0]
    path = source.with_name(f"{stem}-{form.lower()}.gguf")
    if path.exists():
        return path
    kit.require_model(source)
    aside = path.with_suffix(".part")
    argv = [kit.harness.LLAMA_BIN / "llama-quantize", "--allow-requantize", source, aside, form]
    subprocess.run([str(word) for word in argv], check=True, capture_output=True)
    aside.rename(path)
    return path
