"""What serving and PPO ask of GPUs: a calculation from counted work and published speeds.

Nothing here was measured by us. A GPU is described by its data sheet and by how much of that real
programs reach; both are arguments. Formulas: 2 operations per parameter and token for a forward
pass, 6 for forward and backward (Kaplan et al. 2020, "Scaling Laws for Neural Language Models",
section 2.1); a token that is generated reads every weight once for the whole batch and its own keys
and values (Pope et al. 2022, "Efficiently Scaling Transformer Inference").
"""

from dataclasses import dataclass

FORWARD, BOTH = 2.0, 6.0  # operations per parameter and token


@dataclass(frozen=True, slots=True)
class Gpu:
    """Dense operations in bfloat16 a second, bytes of memory and bytes a second from it, and the
    share of each that is reached."""

    name: str
    flops: float
    memory: float
    bandwidth: float
    flops_reached: float = 0.4
    bandwidth_reached: float = 0.6


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters, bytes of keys and values a token leaves, bytes a parameter is held in."""

    name: str
    parameters: float
    kv_bytes: float
    weight_bytes: float = 2.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests a second, tokens of each, and the share that a cache answers."""

    requests_per_s: float
    prompt: float
    answer: float
    cached: float = 0.0

    @property
    def asked_per_s(self) -> float:
        """Requests a second that reach a model."""
        return self.requests_per_s * (1 - self.cached)


def decode_tokens_per_s(
    gpu: Gpu, model: Model, length: float, *, share: float = 0.9, most_rows: float = float("inf")
) -> float:
    """Tokens a second of one GPU that generates for as many answers at once as fit in `share` of
    its memory, each `length` tokens long with its prompt. 0 where the weights do not fit."""
    weights = model.parameters * model.weight_bytes
    rows = min(most_rows, (share * gpu.memory - weights) / (model.kv_bytes * length))
    if rows < 1:
        return 0.0
    read_s = (weights + rows * model.kv_bytes * length) / (gpu.bandwidth * gpu.bandwidth_reached)
    count_s = rows * FORWARD * model.parameters / (gpu.flops * gpu.flops_reached)
    return rows / max(read_s, count_s)


def serving_gpus(gpu: Gpu, model: Model, traffic: Traffic) -> float:
    """GPUs that read the prompts and generate the answers of `traffic`."""
    length = traffic.prompt + traffic.answer / 2  # an answer is half done on average
    speed = decode_tokens_per_s(gpu, model, length)
    reading = traffic.prompt * FORWARD * model.parameters / (gpu.flops * gpu.flops_reached)
    each_s = reading + (traffic.answer / speed if speed else float("inf"))
    return traffic.asked_per_s * each_s


def scoring_gpus(gpu: Gpu, model: Model, traffic: Traffic, *, share: float = 1.0) -> float:
    """GPUs for a reward model that reads prompt and answer of `share` of the requests once."""
    operations = FORWARD * model.parameters * (traffic.prompt + traffic.answer)
    return traffic.asked_per_s * share * operations / (gpu.flops * gpu.flops_reached)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one GPU for the parts of a PPO step."""

    generation: float
    look: float  # policy, reference and critic read the answers
    reward: float
    update: float

    @property
    def whole(self) -> float:
        return self.generation + self.look + self.reward + self.update


def ppo_step(
    gpu: Gpu, policy: Model, reward: Model, *, answers: int, prompt: int, answer: int, epochs: int
) -> Step:
    """A step of PPO with a value head on the policy's trunk, all weights trained. GPU seconds: on G
    of them a step takes at least a G-th of that."""
    tokens = answers * (prompt + answer)
    per_s = gpu.flops * gpu.flops_reached
    speed = decode_tokens_per_s(gpu, policy, prompt + answer / 2, most_rows=answers)
    reading = answers * prompt * FORWARD * policy.parameters / per_s
    return Step(
        generation=reading + (answers * answer / speed if speed else float("inf")),
        look=2 * tokens * FORWARD * policy.parameters / per_s,
        reward=tokens * FORWARD * reward.parameters / per_s,
        update=epochs * tokens * BOTH * policy.parameters / per_s,
    )
