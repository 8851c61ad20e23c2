"""Words and phrases that give a kind of work away, task by task. Written by hand, not learned.

They are features of the trained heads, and `guess` decides by them alone. They are what is left when prompts look like
nothing in the training data: there they beat every trained head (docs/routing.md).
"""

import re
from collections.abc import Collection
from itertools import pairwise

_LISTS = {
    "brainstorming": """
        brainstorm, idea, ideas, suggest, suggestion, suggestions, tips, ways to, ways that, things to, give me
        some, recommend, recommendation, recommendations, come up with, pros and cons, plan my, list of things, what
        are some, what should i, some good, some fun, options for, names for
    """,
    "chat": """
        hi, hello, hey, thanks, thank you, please, my card, my account, my phone, my order, my balance, my calendar,
        my list, my bank, my pin, my flight, my name, your name, are you, you doing, joke, remind me, turn on, turn
        off, goodbye, bye, do you, can you help, talk to you, top up, my refund, i lost my, good morning, how are
        you
    """,
    "classification": """
        classify, classified, classification, categorize, categorise, category, categories, label, identify which,
        identify whether, which of these, which of the, which one, which is a, which are, positive or negative,
        sentiment, sort these, separate, divide, tell me whether, tell me if, tell me which, true or false, spam,
        species of, is alive, or not, fruit or, following as, is the following
    """,
    "closed_qa": """
        according to, given the, given this, based on the, from the passage, in the passage, from the text, using
        the text, reference text, the paragraph, this paragraph, given paragraph, the context, the article, answer
        the question, the document, this document, the above, from this passage
    """,
    "code": """
        code, python, java, javascript, typescript, rust, golang, sql, bash, shell, regex, html, css, json, yaml,
        api, function, script, program, programming, algorithm, compile, compiler, bug, debug, refactor, unit test,
        unit tests, stack trace, traceback, exception, dockerfile, git, array, tuple, tuples, substring, list of
        integers, def, class, pandas, numpy, react, kubernetes, docker, endpoint, segfault, null pointer, stderr,
        linux command, given string
    """,
    "creative_writing": """
        story, short story, poem, haiku, song, lyrics, essay, letter, speech, dialogue, limerick, blog post, tale,
        toast, imagine, pretend, in the style, once upon, fictional, tweet, tagline, slogan, email, cover letter,
        write me, write a short, write about, birthday message, sonnet, screenplay, character who
    """,
    "general_qa": """
        why do, why does, why is, why are, why should, explain, difference between, is the best, benefits of,
        advantages of, meaning of, purpose of, how do i, how do you, how can i, how does, how should, should i, what
        makes, describe, is it better, what happens, tell me about, how to
    """,
    "information_extraction": """
        extract, mentioned, mentioned in, list all, list the, find all, me a list, list of the, bulleted list,
        bullet points, bullets, comma separated, from this text, from the text, pull out, key facts, names of, in
        the text, provide a list, separated by, all the dates, all the names, as json, table of, format
    """,
    "maths": """
        calculate, compute, solve, equation, integral, derivative, probability, how many, how much, percent,
        percentage, sum of, product of, total, average, median, remainder, ratio, triangle, polynomial, prove,
        square root, per hour, per day, per week, per month, times as, twice, matrix, vector, subgroup, standard
        deviation, evaluate, simplify, divisible, integer, in dollars, radius, boxed, factor of, each day,
        hypothesis, confidence interval
    """,
    "open_qa": """
        who is, who was, who wrote, who invented, who won, who sang, who played, who plays, who sings, who directed,
        when did, when was, when is, when were, where is, where was, where did, where are, what year, is the name,
        is the capital, what country, what city, what was the, which country, which city, which year, name the, how
        old, how tall, in what year, in which year, what type of, capital of, what does
    """,
    "reasoning": """
        clue, clues, deduce, infer, inferred, premise, premises, conclusion, logically, contradict, puzzle, riddle,
        therefore, step by step, and only if, fallacy, argument, plaintiff, defendant, court, liable, velocity,
        acceleration, electrons, voltage, molar, equilibrium, trade off, trade offs, lying, statute, negligence,
        taller than, predicate logic, propositional logic, net income, depreciation, lives in the, kinetic energy,
        classifier
    """,
    "summarization": """
        summary, summarize, summarise, summarization, summaries, tl dr, tldr, key points, takeaways, shorten,
        condense, few sentences, one sentence, two sentences, three sentences, one paragraph, few words, main idea,
        main points, brief description, brief overview, short description, gist, recap, concise, briefly, short
        paragraph, abstract of
    """,
}
CUES = {task: frozenset(" ".join(phrase.split()) for phrase in phrases.split(",")) for task, phrases in _LISTS.items()}
TASKS: tuple[str, ...] = tuple(CUES)

_INDICES: dict[str, tuple[int, ...]] = {
    phrase: tuple(index for index, phrases in enumerate(CUES.values()) if phrase in phrases)
    for phrase in frozenset().union(*CUES.values())
}
_WORD = re.compile(r"[^\W\d_]+")
# The more specific cue wins: "write a function" is code, though "write a ..." alone is not.
_PRECEDENCE = (
    "summarization", "code", "information_extraction", "classification", "creative_writing", "closed_qa", "reasoning",
    "maths", "brainstorming", "general_qa", "open_qa", "chat",
)  # fmt: skip
_ORDER = tuple(TASKS.index(task) for task in _PRECEDENCE)


def found(words: Collection[str]) -> list[int]:
    """How many different cues of each task are among lower-cased words that follow each other; shape (len(TASKS),)."""
    listed = list(words)
    pairs = [f"{a} {b}" for a, b in pairwise(listed)]
    triples = [f"{pair} {c}" for pair, c in zip(pairs, listed[2:], strict=False)]
    counts = [0] * len(TASKS)
    for phrase in _INDICES.keys() & {*listed, *pairs, *triples}:
        for index in _INDICES[phrase]:
            counts[index] += 1
    return counts


def first_of(counts: list[int]) -> int | None:
    """The index of the first task, in a fixed order of precedence, that has a cue; None where there is none."""
    return next((index for index in _ORDER if counts[index]), None)


def guess(text: str) -> str | None:
    """The task that the cue words of a text speak for; None where there are none."""
    index = first_of(found(_WORD.findall(text.lower())))
    return None if index is None else TASKS[index]
