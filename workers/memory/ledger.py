"""The memory ledger: which model holds how many bytes, and when. No torch.

Per trainable parameter AdamW costs 16 bytes either way: 4 + 4 + 8 in float32 (weights, gradients,
two moments), 2 + 2 + 4 + 8 in mixed precision (with a float32 master copy). A frozen model costs
its weights. What is held all the time is added to the costliest phase of a step.

Sources: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", section 3 (states and their partition); Chen et al. 2016, "Training Deep Nets with
Sublinear Memory Cost" (checkpointing); Dettmers et al. 2022 (8-bit moments).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

# What a memory ledger is made of: models held, a plan of what is computed, lines. No torch.

RESIDENT, GENERATION, LOOK, SCORING, UPDATE = "resident", "generation", "look", "scoring", "update"
PHASES = {
    RESIDENT: "held all the time",
    GENERATION: "while answers are generated",
    LOOK: "while policy, reference and critic look at the answers",
    SCORING: "while the reward model reads the answers",
    UPDATE: "while the weights are updated",
}
ROLES = {
    "policy": "policy",
    "reference": "reference",
    "critic": "critic",
    "reward": "reward model",
    "judge": "judge",
    "run": "the run itself",
}
SHARDINGS = ("none", "zero1", "zero2", "zero3", "fsdp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Bytes that a forward pass with gradient keeps for its backward pass, without the logits:
    per_length·T + per_token·B·T + per_pair·B·T² for B rows of T tokens."""

    per_length: float
    per_token: float
    per_pair: float

    def bytes(self, rows: int, length: int) -> float:
        tokens = rows * length
        return self.per_length * length + self.per_token * tokens + self.per_pair * tokens * length


FOUR_BITS = 0.516  # bytes of a weight: 4 bits, and 8.1 for the scale of 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Counts of one model. `adapters` and `kept` are those of training at `lora_rank` (0: all
    weights), computed in `dtype`."""

    family: str
    parameters: int  # without adapters
    output_parameters: int  # of these, the output layer's, where it is not the input layer's
    adapters: int
    layers: int
    hidden: int
    vocabulary: int
    kv_per_token: int  # numbers that a token leaves in the cache of keys and values, all layers
    lora_rank: int
    dtype: str
    kept: Kept

    @property
    def four_bit_bytes(self) -> float:
        """Of a weight, on average, with the layers in NF4 and the tables in float32."""
        tables = self.vocabulary * self.hidden + self.output_parameters
        return (FOUR_BITS * (self.parameters - tables) + 4 * tables) / self.parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A model in memory."""

    role: str  # a key of ROLES
    shape: ModelShape
    trained: bool = False
    weight_bytes: float = 4  # per parameter, on average
    copies: int = 1  # members of an ensemble
    spread: int = 1  # devices that its layers are spread over
    adapted: ModelShape | None = None  # the shape with the adapters that could be proposed
    spare: bool = False  # the starting weights once more: with adapters they are not needed

    @property
    def own_parameters(self) -> int:
        """Weights it brings along; a critic has no output layer."""
        without = self.shape.output_parameters if self.role == "critic" else 0
        return (self.shape.parameters - without) * self.copies

    @property
    def trained_parameters(self) -> int:
        if not self.trained:
            return 0
        return self.shape.adapters or self.own_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is held and computed at once. Lengths in tokens, padding included."""

    models: tuple[Held, ...]
    device: str = "cpu"  # cpu | cuda
    precision: str = "float32"  # of the passes: float32 | bfloat16
    master_weights: bool = False  # weights that train are 16-bit and keep a float32 copy
    optimizer: str = "adamw"  # adamw | adamw_8bit
    gradient_checkpointing: bool = False
    value_head: bool = False  # on the policy's trunk
    update_rows: int = 1  # of one forward and backward pass
    update_length: int = 512
    update_response: int = 128  # of update_length, the tokens that the vocabulary is projected on
    logits_chunk: int | None = None  # tokens that the vocabulary is projected on at once; None: all
    chunks_when_split: bool = True  # also where the weights are split over devices
    look_rows: int = 0  # of a forward pass without gradient; 0: there is none
    generate_rows: int = 0
    generate_length: int = 0  # prompt and answer
    engine_bytes: float = 0.0  # of a vLLM beside the policy that draws in its place
    scoring_rows: int = 0
    scoring_length: int = 0
    rollout_rows: int = 0  # answers kept with values and advantages
    rollout_prompt: int = 0
    rollout_response: int = 0
    sharding: str = "none"  # one of SHARDINGS
    devices: int = 1

    def share(self, *since: str) -> float:
        """What one device holds of a part that is split from these shardings on."""
        return 1 / self.devices if self.sharding in since else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Bytes of one part of one model on one device. `how` is the arithmetic in words."""

    role: str
    part: str
    phase: str
    bytes: float
    how: str

    def to_json(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "model": ROLES[self.role],
            "part": self.part,
            "phase": self.phase,
            "bytes": round(self.bytes),
            "how": self.how,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Everything that is held, and the largest moment."""

    plan: Plan
    lines: tuple[Line, ...]

    def of_phase(self, phase: str) -> float:
        return sum(line.bytes for line in self.lines if line.phase == phase)

    def of_part(self, part: str) -> float:
        return sum(line.bytes for line in self.lines if line.part == part)

    def of_role(self, role: str) -> float:
        return sum(line.bytes for line in self.lines if line.role == role)

    @property
    def peak_phase(self) -> str:
        return max((phase for phase in PHASES if phase != RESIDENT), key=self.of_phase)

    @property
    def peak(self) -> float:
        """Bytes at the largest moment: what is always held, and the costliest phase."""
        return self.of_phase(RESIDENT) + self.of_phase(self.peak_phase)


MOMENT_BYTES = {"adamw": 8.0, "adamw_8bit": 2.0}  # of both moments, per trained parameter

# Tables of logits that exist at once: the logits, their log-softmax and what is computed from it.
# Counted on workers.rl.losses; tests/workers/preflight holds the number to what is measured.
TRAINED_LOGITS, SEEN_LOGITS = 4, 4
READING = 0.67  # of what a layer would keep, what exists at once where nothing is kept
LOGIT_BYTES = 4  # they are float32 whatever the passes are
# Per stored response token: id and mask (8 each), and eight float32 of log-probabilities, values,
# rewards, advantages and returns. Per prompt token: id and mask.
ROLLOUT_RESPONSE_BYTES, ROLLOUT_PROMPT_BYTES = 48, 16
# What a process of Python, torch and transformers takes before it holds a model.
RUNTIME_BYTES = {"cpu": 0.7e9, "cuda": 0.6e9}


def ledger(plan: Plan) -> Ledger:
    """Every line of the plan, for one device."""
    lines = [*_states(plan), *_generation(plan), *_look(plan), *_scoring(plan), *_update(plan)]
    return Ledger(plan=plan, lines=tuple(line for line in lines if line.bytes > 0))


def _states(plan: Plan) -> Iterator[Line]:
    """What is held whatever the step is doing."""
    for held in plan.models:
        shape, count = held.shape, held.own_parameters
        share = plan.share("zero3", "fsdp") / held.spread
        yield Line(
            role=held.role,
            part="weights",
            phase=RESIDENT,
            bytes=count * held.weight_bytes * share,
            how=f"{count:,} parameters × {held.weight_bytes:.3g} B{_split(share)}",
        )
        if plan.precision == "float32" and held.weight_bytes < 4:
            widest = shape.vocabulary * shape.hidden
            yield Line(
                role=held.role,
                part="one matrix in float32",
                phase=RESIDENT,
                bytes=widest * 4,
                how=f"{widest:,} parameters × 4 B, widened where it is used",
            )
        if not held.trained:
            continue
        if shape.adapters:
            yield Line(
                role=held.role,
                part="adapters",
                phase=RESIDENT,
                bytes=shape.adapters * 4 * share,
                how=f"{shape.adapters:,} parameters of rank {shape.lora_rank} × 4 B{_split(share)}",
            )
        trained = held.trained_parameters + _head(plan, held)
        share = plan.share("zero1", "zero2", "zero3", "fsdp")
        moments = MOMENT_BYTES[plan.optimizer]
        yield Line(
            role=held.role,
            part="optimizer",
            phase=RESIDENT,
            bytes=trained * moments * share,
            how=f"{trained:,} trained parameters × {moments:g} B of moments{_split(share)}",
        )
        if plan.master_weights and not shape.adapters:
            yield Line(
                role=held.role,
                part="master weights",
                phase=RESIDENT,
                bytes=trained * 4 * share,
                how=f"{trained:,} trained parameters × 4 B{_split(share)}",
            )
    response, prompt = plan.rollout_response, plan.rollout_prompt
    yield Line(
        role="run",
        part="rollout",
        phase=RESIDENT,
        bytes=plan.rollout_rows
        * (response * ROLLOUT_RESPONSE_BYTES + prompt * ROLLOUT_PROMPT_BYTES),
        how=f"{plan.rollout_rows} answers × ({response} tokens × {ROLLOUT_RESPONSE_BYTES} B + "
        f"{prompt} prompt tokens × {ROLLOUT_PROMPT_BYTES} B): ids, masks, log-probabilities, "
        "values, advantages, returns",
    )
    yield Line(
        role="run",
        part="runtime",
        phase=RESIDENT,
        bytes=RUNTIME_BYTES[plan.device],
        how="Python, torch and transformers before they hold anything",
    )


def _generation(plan: Plan) -> Iterator[Line]:
    policy = _of(plan, "policy")
    if policy is None or not plan.generate_rows:
        return
    rows, length = plan.generate_rows, plan.generate_length
    if plan.engine_bytes:
        yield Line(
            role="policy",
            part="vLLM",
            phase=GENERATION,
            bytes=plan.engine_bytes,
            how="its share of the GPU (vllm_memory): weights in 16 bits, cache and passes, let go "
            "of before the update",
        )
        return
    number = _bytes(plan)
    per_token = policy.shape.kv_per_token
    yield Line(
        role="policy",
        part="KV cache",
        phase=GENERATION,
        bytes=per_token * rows * length * number,
        how=f"{rows} answers × {length} tokens × {per_token:,} numbers × {number} B",
    )
    yield Line(
        role="policy",
        part="logits",
        phase=GENERATION,
        bytes=rows * policy.shape.vocabulary * LOGIT_BYTES * SEEN_LOGITS,
        how=f"{rows} answers × {policy.shape.vocabulary:,} tokens of the vocabulary × "
        f"{LOGIT_BYTES} B × {SEEN_LOGITS} tables",
    )


def _look(plan: Plan) -> Iterator[Line]:
    policy = _of(plan, "policy")
    if policy is None or not plan.look_rows:
        return
    yield _logits(plan, policy, LOOK, plan.look_rows, plan.update_response, SEEN_LOGITS)
    yield _one_layer(policy, LOOK, plan.look_rows, plan.update_length)


def _scoring(plan: Plan) -> Iterator[Line]:
    for role in ("reward", "judge"):
        held = _of(plan, role)
        if held is not None and not held.trained and plan.scoring_rows:
            yield _one_layer(held, SCORING, plan.scoring_rows, plan.scoring_length)


def _update(plan: Plan) -> Iterator[Line]:
    rows, length = plan.update_rows, plan.update_length
    for held in plan.models:
        if not held.trained:
            continue
        trained = held.trained_parameters + _head(plan, held)
        number = 2 if plan.master_weights and not held.shape.adapters else 4
        share = plan.share("zero2", "zero3", "fsdp")
        yield Line(
            role=held.role,
            part="gradients",
            phase=UPDATE,
            bytes=trained * number * share,
            how=f"{trained:,} trained parameters × {number} B{_split(share)}",
        )
        yield _activations(plan, held)
        if plan.precision == "bfloat16" and held.weight_bytes >= 4:
            layers = held.shape.layers if plan.gradient_checkpointing else 1
            yield Line(
                role=held.role,
                part="weights in bfloat16",
                phase=UPDATE,
                bytes=held.own_parameters * 2 / layers,
                how=f"{held.own_parameters:,} parameters × 2 B, cast for the pass"
                + (f", one of {layers} layers at a time" if layers > 1 else ""),
            )
        if held.role == "policy":
            line = _logits(plan, held, UPDATE, rows, plan.update_response, TRAINED_LOGITS)
            yield _beside_critic(plan, line)
    reference = _of(plan, "reference")
    if reference is not None and not plan.look_rows:  # it reads along within the update
        yield _logits(plan, reference, UPDATE, rows, plan.update_response, SEEN_LOGITS)
        yield _one_layer(reference, UPDATE, rows, length)


def _activations(plan: Plan, held: Held) -> Line:
    rows, length = plan.update_rows, plan.update_length
    shape = held.shape
    whole = shape.kept.bytes(rows, length)
    if not plan.gradient_checkpointing:
        return Line(
            role=held.role,
            part="activations",
            phase=UPDATE,
            bytes=whole,
            how=f"{rows} × {length} tokens × {whole / (rows * length):,.0f} B kept for the "
            f"backward pass, by a forward pass on the meta device",
        )
    entries = shape.layers * rows * length * shape.hidden * _bytes(plan)
    return Line(
        role=held.role,
        part="activations",
        phase=UPDATE,
        bytes=entries + whole / shape.layers,
        how=f"checkpointed: {shape.layers} layers × {rows} × {length} tokens × {shape.hidden} × "
        f"{_bytes(plan)} B, and one layer in full",
    )


def _logits(plan: Plan, held: Held, phase: str, rows: int, tokens: int, tables: int) -> Line:
    at_once = rows * tokens
    chunked = plan.logits_chunk is not None and plan.logits_chunk < at_once
    if plan.logits_chunk is not None:
        at_once = min(at_once, plan.logits_chunk)
    vocabulary = held.shape.vocabulary
    return Line(
        role=held.role,
        part="logits",
        phase=phase,
        bytes=at_once * vocabulary * LOGIT_BYTES * tables,
        how=f"{at_once:,} tokens {'of a chunk' if chunked else 'of answers'} × {vocabulary:,} of "
        f"the vocabulary × {LOGIT_BYTES} B × {tables} tables",
    )


def _beside_critic(plan: Plan, logits: Line) -> Line:
    """What a critic of its own keeps comes after most tables of logits are gone, so that only the
    larger of the two counts; one table stays for the backward pass, unless it is made again."""
    critic = _of(plan, "critic")
    if critic is None:
        return logits
    chunked = "of a chunk" in logits.how
    stays = 0.0 if chunked else logits.bytes / TRAINED_LOGITS
    over = logits.bytes - stays - _activations(plan, critic).bytes
    return replace(
        logits,
        bytes=stays + max(0.0, over),
        how=f"{logits.how}, as far as they are there together with the critic's activations",
    )


def _one_layer(held: Held, phase: str, rows: int, length: int) -> Line:
    """A pass without gradient holds at once about two thirds of what one layer would keep."""
    shape = held.shape
    return Line(
        role=held.role,
        part="activations",
        phase=phase,
        bytes=READING * shape.kept.bytes(rows, length) / shape.layers,
        how=f"{rows} × {length} tokens through one of {shape.layers} layers at a time",
    )


def _head(plan: Plan, held: Held) -> int:
    """Parameters of the value head: on the policy's trunk, or on the critic's own."""
    with_head = held.role == "critic" or (held.role == "policy" and plan.value_head)
    return held.shape.hidden + 1 if with_head else 0


def _of(plan: Plan, role: str) -> Held | None:
    return next((held for held in plan.models if held.role == role), None)


def _bytes(plan: Plan) -> int:
    return 2 if plan.precision == "bfloat16" else 4


def _split(share: float) -> str:
    return "" if share == 1 else f", split over {round(1 / share)} devices"
