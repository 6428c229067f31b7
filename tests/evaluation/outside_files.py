"""Files as lm-evaluation-harness 0.4 and Inspect (log version 2) write them, made by hand."""

import hashlib
import io
import json
import zipfile
from typing import Any

HASHES = [(f"d{k}", f"p{k}", f"t{k}") for k in range(8)]
TASK_HASH = hashlib.sha256("".join("".join(one) for one in HASHES).encode()).hexdigest()


def lm_eval(**changes: Any) -> dict[str, Any]:
    """Two tasks of a group, 8 documents of the first."""
    return {
        "results": {
            "facts": {" ": " ", "alias": "facts"},
            "facts_easy": {
                "name": "facts_easy",
                "alias": " - facts_easy",
                "sample_len": 8,
                "acc,none": 0.75,
                "acc_stderr,none": 0.1637,
                "acc_norm,none": 0.5,
                "acc_norm_stderr,none": "N/A",
            },
            "sums": {
                "alias": "sums",
                "exact_match,strict-match": 0.25,
                "exact_match_stderr,strict-match": 0.0968,
                "exact_match,flexible-extract": 0.35,
                "exact_match_stderr,flexible-extract": 0.1067,
            },
        },
        "group_subtasks": {"facts": ["facts_easy"], "facts_easy": [], "sums": []},
        "configs": {
            "facts_easy": {
                "task": "facts_easy",
                "dataset_path": "json",
                "doc_to_text": "Q: {{question}}\nA:",
                "process_docs": "<function process_docs at 0x7f21a05c3d80>",
                "num_fewshot": 5,
                "metadata": {"version": 1.0, "pretrained": "org/model-a"},
            },
            "sums": {"task": "sums", "output_type": "generate_until", "num_fewshot": 0},
        },
        "versions": {"facts_easy": 1.0, "sums": 3.0},
        "n-shot": {"facts_easy": 5, "sums": 0},
        "higher_is_better": {"facts_easy": {"acc": True, "acc_norm": True}},
        "n-samples": {
            "facts_easy": {"original": 2376, "effective": 8},
            "sums": {"original": 20, "effective": 20},
        },
        "config": {
            "model": "hf",
            "model_args": "pretrained=org/model-a,dtype=bfloat16,api_key=abc123",
            "model_dtype": "torch.bfloat16",
            "batch_size": "8",
            "device": "cuda:0",
            "limit": 8.0,
            "gen_kwargs": None,
            "random_seed": 0,
            "numpy_seed": 1234,
            "torch_seed": 1234,
            "fewshot_seed": 1234,
        },
        "git_hash": "9f1c2ab",
        "date": 1765108800.0,
        "transformers_version": "5.1.0",
        "lm_eval_version": "0.4.13",
        "max_length": 4096,
        "model_source": "hf",
        "model_name": "org/model-a",
        "system_instruction_sha": None,
        "fewshot_as_multiturn": False,
        "chat_template": None,
        "chat_template_sha": None,
        "task_hashes": {"facts_easy": TASK_HASH},
    } | changes


def samples(n: int = 8) -> bytes:
    """samples_facts_easy_*.jsonl."""
    rows = [
        {
            "doc_id": k,
            "doc": {"question": f"{k}?"},
            "target": "A",
            "filter": "none",
            "metrics": ["acc"],
            "acc": float(k < 6),
            "doc_hash": doc,
            "prompt_hash": prompt,
            "target_hash": target,
        }
        for k, (doc, prompt, target) in enumerate(HASHES[:n])
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def inspect(**changes: Any) -> dict[str, Any]:
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": "e1",
            "created": "2026-10-02T10:00:00+00:00",
            "task": "refusals",
            "task_version": 2,
            "task_args": {"shots": 3},
            "dataset": {"name": "refusals", "samples": 40, "sample_ids": [1, 2], "shuffled": False},
            "model": "vllm/org/model-a",
            "model_base_url": "http://localhost:8000",
            "model_args": {"dtype": "bfloat16", "api_key": "abc123"},
            "config": {"epochs": 1, "limit": 40},
            "revision": {"type": "git", "origin": "o", "commit": "0ff1ce", "dirty": False},
            "packages": {"inspect_ai": "0.3.285"},
        },
        "plan": {
            "name": "plan",
            "steps": [{"solver": "generate", "params": {}}],
            "config": {"temperature": 0.0},
        },
        "results": {
            "total_samples": 40,
            "completed_samples": 40,
            "scores": [
                {
                    "name": "includes",
                    "scorer": "includes",
                    "scored_samples": 40,
                    "params": {},
                    "metrics": {
                        "accuracy": {"name": "accuracy", "value": 0.9, "params": {}},
                        "stderr": {"name": "stderr", "value": 0.048, "params": {}},
                        "std": {"name": "std", "value": 0.3, "params": {}},
                    },
                }
            ],
        },
        "stats": {"started_at": "2026-10-02T10:00:00+00:00"},
    } | changes


def as_bytes(found: Any) -> bytes:
    return json.dumps(found).encode()


def zipped(**files: bytes) -> bytes:
    """`__` in a name stands for a slash, `_dot_` for a dot."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), data)
    return out.getvalue()
