"""The operator's own rules: which of them does a prompt meet? Knows a prompt's text, size and task, and no models."""

import re

from routing.types import Prompt, Rule


class Rules:
    """Rules made ready to be asked."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = [(rule, _title(index, rule), _Phrases(rule.contains)) for index, rule in enumerate(rules)]

    def first_met(self, prompt: Prompt, sure_task: str | None) -> tuple[Rule, str] | None:
        """The first rule met and its title. `sure_task` is None where the classifier isn't sure."""
        for rule, title, phrases in self._rules:
            if (
                _holds(rule, prompt.num_tokens)
                and phrases.are_in(prompt.text)
                and (rule.task is None or rule.task == sure_task)
            ):
                return rule, title
        return None


def _title(index: int, rule: Rule) -> str:
    return f'rule "{rule.name}"' if rule.name else f"rule {index + 1}"


def _holds(rule: Rule, num_tokens: int) -> bool:
    if rule.min_prompt_tokens is not None and num_tokens < rule.min_prompt_tokens:
        return False
    return rule.max_prompt_tokens is None or num_tokens <= rule.max_prompt_tokens


class _Phrases:
    """Is any phrase in a text, as whole words, whatever the case? No phrases: yes."""

    def __init__(self, phrases: tuple[str, ...]) -> None:
        self._lower = tuple(phrase.strip().lower() for phrase in phrases)
        either = "|".join(map(re.escape, self._lower))
        self._pattern = re.compile(rf"(?<!\w)(?:{either})(?!\w)")

    def are_in(self, text: str) -> bool:
        if not self._lower:
            return True
        lower = text.lower()
        # A plain search first: it is some fifty times faster than the pattern, and mostly says no.
        return any(phrase in lower for phrase in self._lower) and self._pattern.search(lower) is not None
