"""Answers held to a grammar: which tokens may come next, as bit masks, by llguidance."""

from engine.grammar.compiler import GrammarCompiler
from engine.grammar.masks import MaskJob, MaskWorker
from engine.grammar.matcher import Matcher

__all__ = ["GrammarCompiler", "MaskJob", "MaskWorker", "Matcher"]
