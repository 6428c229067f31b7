"""What a memory ledger is made of: models held, a plan of what is computed, lines. No torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workers.memory.shape import ModelShape

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
class Held:
    """A model in memory."""

    role: str  # a key of ROLES
    shape: "ModelShape"
    trained: bool = False
    weight_bytes: int = 4  # per parameter
    copies: int = 1  # members of an ensemble
    adapted: "ModelShape | None" = None  # the shape with the adapters that could be proposed
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
        """Bytes at the largest moment: what is always held, and the dearest phase."""
        return self.of_phase(RESIDENT) + self.of_phase(self.peak_phase)
