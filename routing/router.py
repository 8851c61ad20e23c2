"""Which tier should answer, and which models in which order? The decision itself; it does no I/O and keeps no state.

The prompt's text is judged and never obeyed: words in it that ask for a tier are words like any others.
"""

from routing.candidates import Ranking
from routing.errors import UnknownTier
from routing.heads import Heads, Judgement, load_shipped
from routing.policy import check
from routing.quality import scores, temper
from routing.rules import Rules
from routing.signals import Features, extract, guessed_task, named
from routing.types import Decision, Policy, Prompt, Signals

HARD = frozenset({"code", "maths", "reasoning"})  # work whose cues count even where the head is unsure


class Router:
    """Decides for prompts under one policy.

    In this order: the tier asked for by header; the operator's rules; the tier that claims the task, tempered by
    `quality` (quality.py). Where the classifier isn't sure, but the text's cues speak for hard work (code, maths or
    reasoning), the tier that claims that, tempered too; else the fallback tier: hard work that a small model gets wrong
    costs more than easy work that a large one gets right. Then the capability filter: a tier none of whose models can
    do the request hands over to the next dearer one that has a model, else to the next cheaper.
    """

    def __init__(self, policy: Policy, heads: Heads | None = None) -> None:
        """Without heads, the shipped ones judge by the text's features alone. Raises PolicyError."""
        self._heads = heads or load_shipped(None)
        check(policy, self._heads.tasks)
        self.policy = policy
        self._tiers = {tier.name: index for index, tier in enumerate(policy.tiers)}
        # A task that two tiers claim belongs to the cheaper.
        self._homes = {task: tier.name for tier in reversed(policy.tiers) for task in tier.tasks}
        self._rules = Rules(policy.rules)
        self._ranking = Ranking(policy)

    def with_policy(self, policy: Policy) -> "Router":
        """A router with the same heads under another policy. Raises PolicyError; this one is unchanged."""
        return Router(policy, self._heads)

    def choose(self, prompt: Prompt) -> Decision:
        """The tier, the models to try in order, and why. The embedding comes with the prompt; none is computed here.

        Raises UnknownTier for a header that names none, NoCapableModel where nothing can do the request, and
        HeadMismatch for an embedding of another length than the heads were trained on. Whatever the text holds, there
        is a decision.
        """
        if prompt.tier is not None:
            if prompt.tier not in self._tiers:
                raise UnknownTier(prompt.tier, tuple(self._tiers))
            return self._decision(prompt, prompt.tier, "header")
        features = extract(prompt.text)
        judgement = self._heads.judge(features, prompt.embedding)
        signals = self._signals(judgement, features)
        tier, reason = self._by_rule(prompt, judgement) or self._by_task(prompt, judgement, features, signals)
        return self._decision(prompt, tier, reason, signals)

    def _by_rule(self, prompt: Prompt, judgement: Judgement) -> tuple[str, str] | None:
        sure = judgement.task if self._is_sure(prompt, judgement) else None
        met = self._rules.first_met(prompt, sure)
        return (met[0].tier, met[1]) if met else None

    def _by_task(self, prompt: Prompt, judgement: Judgement, features: Features, signals: Signals) -> tuple[str, str]:
        blind = "" if judgement.used_embedding else " (no embedding)"
        if not prompt.text.strip():
            return self.policy.fallback_tier, "no text to judge"
        if self._is_sure(prompt, judgement):
            reason = f"task={judgement.task} {judgement.confidence:.2f}{blind}"
            home = self._homes.get(judgement.task)
            if home is None:
                home, reason = self.policy.default_tier, f"{reason}, which no tier claims"
            return self._tempered(home, reason, signals)
        reason = f"low_confidence {judgement.confidence:.2f}{blind}"
        cues = guessed_task(features)
        if cues in HARD and cues in self._homes:
            return self._tempered(self._homes[cues], f"cues={cues}, {reason}", signals)
        return self.policy.fallback_tier, reason

    def _tempered(self, home: str, reason: str, signals: Signals) -> tuple[str, str]:
        quality, tiers = self.policy.quality, self.policy.tiers
        chosen = tiers[temper(tiers, self._tiers[home], tuple(signals.scores.values()), quality)].name
        if chosen != home:
            odds = ", ".join(f"p({name})={signals.scores[name]:.2f}" for name in (home, chosen))
            reason = f"{reason}; quality {quality:g} moves it from {home}: {odds}"
        return chosen, reason

    def _is_sure(self, prompt: Prompt, judgement: Judgement) -> bool:
        return bool(prompt.text.strip()) and judgement.confidence >= self.policy.min_confidence

    def _signals(self, judgement: Judgement, features: Features) -> Signals:
        scored = scores(self.policy.tiers, judgement.weak_right, judgement.strong_right)
        return Signals(
            task=judgement.task,
            task_confidence=round(judgement.confidence, 4),
            features=named(features),
            scores={name: round(score, 4) for name, score in zip(self._tiers, scored, strict=True)},
        )

    def _decision(self, prompt: Prompt, wanted: str, reason: str, signals: Signals | None = None) -> Decision:
        index, models = self._ranking.rank(self._tiers[wanted], prompt)
        tier = self.policy.tiers[index].name
        if tier != wanted:
            reason = f"{reason}; {self._ranking.why_not(self._tiers[wanted], prompt)}"
        signals = signals or Signals()
        return Decision(
            tier=tier, candidates=models, reason=reason, confidence=signals.task_confidence, signals=signals
        )
