"""What a trainer gets of the worker's environment: what a trainer reads, and nothing else.

A list of what is allowed, since a variable that somebody adds to the web side tomorrow may be a
password. `TRAINER_ENVIRONMENT` names further ones.
"""

from collections.abc import Mapping

VARIABLE = "TRAINER_ENVIRONMENT"
_SYSTEM = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "TERM", "TZ", "TMPDIR"),
    *("LANG", "LANGUAGE", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "CC", "CXX", "CPATH", "LIBRARY_PATH"),  # Triton compiles
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
_OURS = (
    *("VAR_DIR", "WORK_DIR", "LOG_LEVEL", "MODEL_FOLDERS", "DRILL_FOLDER", "TRAINER_PROCESSES"),
    *("ARTIFACTS_CACHE", "ARTIFACTS_CACHE_GB", "SCORE_CACHE_URL", "TRACKING", "TRACKING_DIR"),
    *("REWARD_HOSTS", "REWARD_TOKEN", "INFERENCE_HOSTS", "INFERENCE_TOKEN"),
)
_BEGINNINGS = (
    *("LC_", "PYTHON", "COVERAGE_"),
    *("CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "FI_", "ROCR_", "ROCM_", "HIP_", "HSA_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_"),
    *("TORCH", "PYTORCH_", "TRITON_", "ACCELERATE_", "FSDP_", "DEEPSPEED_", "DS_", "RAY_", "VLLM_"),
    *("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TOKENIZERS_", "SAFETENSORS_"),
    *("AWS_", "FSSPEC_", "GOOGLE_", "AZURE_"),  # of an artifact store elsewhere
    *("MLFLOW_", "WANDB_"),
    *("REWARD_TOKEN_", "INFERENCE_TOKEN_"),
)


def trainer_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The part of `ours` that a trainer gets."""
    added = [word.strip() for word in ours.get(VARIABLE, "").split(",")]
    allowed = {*_SYSTEM, *_OURS, *added}
    return {
        name: value
        for name, value in ours.items()
        if name in allowed or name.startswith(_BEGINNINGS)
    }
