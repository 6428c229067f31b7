"""Makes a model folder of safetensors out of a GGUF file: `python -m workers.models.convert FILE
FOLDER`. It needs the package `gguf` and, for a moment, the model in float32."""

import sys
from pathlib import Path

from transformers import AutoModelForCausalLM

from workers.models.loading import gguf_options, load_as_saved, load_tokenizer, save_model


def convert(file: Path, folder: Path) -> None:
    """Unpack a causal language model and save it in bfloat16, with its tokenizer."""
    tokenizer = load_tokenizer(file.parent, gguf_file=file.name)
    model, missing = load_as_saved(AutoModelForCausalLM, file.parent, **gguf_options(file.name))
    if missing:
        raise ValueError(f"{file.name}: {len(missing)} weights are missing, such as {min(missing)}")
    model.config.pad_token_id = tokenizer.pad_token_id
    save_model(model.bfloat16(), tokenizer, folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
