"""Words, phrases and marks that give a kind of work away, task by task. Written by hand, not learned.

They are features of the trained heads, and `guess` decides by them alone. They are what is left when prompts look like
nothing in the training data: there they beat every trained head (docs/routing.md).
"""

import re
from itertools import pairwise

_LISTS = {
    "brainstorming": """
        brainstorm, idea, ideas, suggest, suggestion, suggestions, tips, ways to, ways that, things to, give me
        some, recommend, recommendation, recommendations, come up with, pros and cons, plan my, list of things, what
        are some, what should i, some good, some fun, options for, names for
    """,
    "chat": """
        hi, hello, hey, thanks, thank you, my card, my account, my phone, my order, my balance, my calendar, my list, my
        bank, my pin, my flight, my name, your name, are you, you doing, joke, remind me, turn on, turn off, goodbye,
        bye, talk to you, top up, my refund, i lost my, good morning, good evening, good night, how are you
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
        code, codebase, source code, python, java, javascript, typescript, rust, golang, kotlin, php, perl, haskell,
        scala, matlab, solidity, bash, powershell, shell, sql, mysql, postgres, postgresql, sqlite, mongodb, redis,
        graphql, html, css, flexbox, div, dom, jsx, react, angular, vue, svelte, node js, npm, webpack, django, flask,
        fastapi, rails, laravel, spring boot, pandas, numpy, pytorch, tensorflow, dataframe, docker, dockerfile, docker
        compose, kubernetes, kubectl, helm chart, terraform, ansible, nginx, linux, linux command, systemd, ssh, cron,
        crontab, makefile, cmake, gcc, linker, undefined reference, git, github, rebase, merge conflict, pull request,
        ci pipeline, yaml, json, xml, api, endpoint, webhook, websocket, oauth, jwt, cors, http, async, await,
        asynchronous, coroutine, goroutine, mutex, deadlock, race condition, thread safe, multithreaded, concurrency,
        distributed system, microservice, microservices, rate limiter, load balancer, message queue, kafka, closure,
        decorator, callback, recursion, recursive, linked list, binary tree, binary search, hash map, hashmap, hash
        table, time complexity, dynamic programming, memory leak, segfault, segmentation fault, null pointer, undefined
        behaviour, undefined behavior, syntax error, type error, runtime error, stack trace, stack overflow, traceback,
        exception, stderr, stdout, compile, compiles, compiler, compilation, bug, bugs, debug, debugging, debugger,
        refactor, refactoring, boilerplate, unit test, unit tests, integration tests, pytest, regex, regular expression,
        a function, function to, function that, function which, this function, my function, function called, function
        named, python function, script that, script to, shell script, this script, a program, program to, program that,
        programming, this class, class that, abstract class, subclass, algorithm, database schema, database index,
        primary key, foreign key, left join, inner join, query plan, slow query, sql query, this query, query that, seq
        scan, index scan, stored procedure, array, tuple, tuples, substring, list of integers, given string, def,
        struct, enum, pointers, iterator, bitwise, hexadecimal, command line, environment variable, dependency
        injection, design pattern, software architecture, excel formula
    """,
    "creative_writing": """
        story, short story, poem, haiku, song, lyrics, essay, letter, speech, dialogue, limerick, blog post, tale,
        toast, imagine, pretend, in the style, once upon, fictional, tweet, tagline, slogan, email, cover letter, write
        me, write a short, write about, birthday message, sonnet, screenplay, character who, ballad, novel, verse,
        rhyme, rhymes, rhyming
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
        calculate, compute, solve, equation, equations, integral, integrate, antiderivative, derivative, differentiate,
        differential equation, calculus, algebra, trigonometry, probability, binomial, permutations, factorial,
        combinatorics, expected value, variance, standard deviation, confidence interval, hypothesis, p value, sum of,
        product of, greatest common, least common, prime number, prime numbers, prime factors, divisible, remainder,
        modulo, logarithm, quadratic, polynomial, coefficient, coefficients, roots of, factorise, factorize, factor of,
        square root, cube root, squared, cosine, hypotenuse, triangle, radius, circumference, perimeter, parallelogram,
        prove, prove that, proof, proof of, theorem, lemma, by induction, converge, converges, geometric series, taylor
        series, fourier, laplace, matrix, matrices, determinant, eigenvalue, eigenvalues, eigenvector, eigenvectors, dot
        product, vector, vector space, subgroup, isomorphism, homomorphism, irrational, real numbers, rational numbers,
        complex number, complex numbers, integer, integers, odd numbers, even numbers, simplify, in terms of, compound
        interest, compounded, boxed, how many, how much, how long, how far, how fast, percent, percentage, total,
        average, median, ratio, per hour, per day, per week, per month, times as, twice, evaluate, in dollars, each day
    """,
    "open_qa": """
        who is, who was, who wrote, who invented, who won, who sang, who played, who plays, who sings, who directed,
        when did, when was, when is, when were, where is, where was, where did, where are, what year, is the name,
        is the capital, what country, what city, what was the, which country, which city, which year, name the, how
        old, how tall, in what year, in which year, what type of, capital of, what does
    """,
    "reasoning": """
        clue, clues, deduce, deduction, infer, inferred, premise, premises, conclusion, logically, logic puzzle,
        syllogism, contradict, contradiction, paradox, puzzle, riddle, brain teaser, therefore, step by step, and only
        if, does it follow, follow that, must be true, truth table, fallacy, argument, always lies, tells the truth, the
        truth, lying, liar, plaintiff, defendant, court, liable, liability, negligence, statute, lawsuit, sue, can i
        sue, breach of, tort, tax implications, velocity, acceleration, momentum, friction, torque, kinetic energy,
        potential energy, projectile, voltage, resistor, circuit, magnetic field, electric field, wavelength,
        thermodynamics, entropy, enthalpy, electrons, molar, molarity, stoichiometry, equilibrium, oxidation, half life,
        demand curve, elasticity, marginal cost, opportunity cost, net income, depreciation, balance sheet, trade off,
        trade offs, tradeoffs, taller than, older than, heavier than, heavier, left of, predicate logic, propositional
        logic, lives in the, differential diagnosis, diagnose, counterexample, classifier
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
# Quantities are asked for in every kind of question; they speak for maths only beside a number to work with.
_NEED_A_NUMBER = frozenset(
    (
        *("how many", "how much", "how long", "how far", "how fast", "percent", "percentage", "total", "average"),
        *("median", "ratio", "per hour", "per day", "per week", "per month", "times as", "twice", "evaluate"),
        *("in dollars", "each day"),
    )
)
# Whoever asks for a poem about Python wants a poem: these speak for creative writing whatever else is named.
_FORMS = ("poem", "haiku", "sonnet", "limerick", "song", "story", "ballad")
_DECISIVE = frozenset(
    phrase for form in _FORMS for phrase in (f"write a {form}", f"compose a {form}", f"{form} about", f"short {form}")
)
# Marks of a kind of work that are not words, each counted once at most. A pattern is only searched for where a text has
# one of the strings before it: that spares most texts most patterns, and half of the time.
_DIGITS = tuple("0123456789")
_SQL = ("SELECT", "INSERT INTO", "DELETE FROM", "CREATE TABLE", "ALTER TABLE", "GROUP BY", "ORDER BY")
_OPERATORS = ("```", "#include", "()", "==", "!=", "=>", "&&", "||", "::")
_DEFINITIONS = ("def ", "fn ", "func ", "function ", "for ", "const ", "let ", "var ", "int ", "void ")
_MARKS = {
    TASKS.index("code"): (
        (_OPERATORS, re.compile(r"```|#include|\w\(\)|[!=]==?|=>|&&|\|\||::")),
        (("Error", "Exception"), re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")),
        (_SQL, re.compile(rf"\b(?:{'|'.join(_SQL)})\b")),
        ((".",), re.compile(r"\w\.(?:py|js|ts|tsx|jsx|go|rs|java|cpp|rb|sh|sql|ya?ml|json|html|css|php|kt|toml)\b")),
        (
            _DEFINITIONS,
            re.compile(
                r"\b(?:def|fn|func|function) \w*\(|\bfor \w+ in \w+[:(.]|\b(?:const|let|var|int|void) \w+ ?[=;(\[]"
            ),
        ),
        (
            ("C++", "C#", "0x", ">", "{", "}", ";"),
            re.compile(r"(?<!\w)C(?:\+\+|#)|\b0x[0-9A-Fa-f]+\b|</?[a-z]\w*>|[{};]\s*\n"),
        ),
    ),
    TASKS.index("maths"): (
        (
            tuple("^\\∫√∑π≤≥*×÷+%"),
            re.compile(r"\w ?\^ ?[\w({]|\\(?:frac|int|sum|sqrt|lim)|[∫√∑π≤≥]|\d ?[*×÷+] ?\d|\d% of"),
        ),
        ((*_DIGITS, "[["), re.compile(r"\b\d+[xyz]\b|\b[xyzn] ?[-+*/=] ?\d|\[\[[-\d]")),
    ),
    TASKS.index("reasoning"): (
        (
            (" are ", " ARE "),
            re.compile(r"\b(?:all|some|no) \w+ are \w+.{0,200}?\b(?:all|some|no|every) \w+ (?:are|is)\b", re.I | re.S),
        ),
    ),
}
_WORD = re.compile(r"[^\W\d_]+")
# The more specific cue wins: "write a function" is code, though "write a ..." alone is not.
_PRECEDENCE = (
    "summarization", "code", "information_extraction", "classification", "creative_writing", "closed_qa", "reasoning",
    "maths", "brainstorming", "general_qa", "open_qa", "chat",
)  # fmt: skip
_ORDER = tuple(TASKS.index(task) for task in _PRECEDENCE)


def read(text: str) -> tuple[list[int], int | None]:
    """How many different cues of each task a text has, shape (len(TASKS),); and the index of the task they speak for.

    That is None where there is no cue at all; else the task of a decisive phrase, or the first, in a fixed order of
    precedence, that has a cue.
    """
    words = _WORD.findall(text.lower())
    pairs = [f"{a} {b}" for a, b in pairwise(words)]
    triples = [f"{pair} {c}" for pair, c in zip(pairs, words[2:], strict=False)]
    phrases = {*words, *pairs, *triples}
    counts = [0] * len(TASKS)
    cues = _INDICES.keys() & phrases
    if not any(map(text.__contains__, _DIGITS)):
        cues -= _NEED_A_NUMBER
    for phrase in cues:
        for index in _INDICES[phrase]:
            counts[index] += 1
    for index, marks in _MARKS.items():
        counts[index] += sum(
            any(map(text.__contains__, hints)) and mark.search(text) is not None for hints, mark in marks
        )
    if _DECISIVE & phrases:
        return counts, TASKS.index("creative_writing")
    return counts, next((index for index in _ORDER if counts[index]), None)


def guess(text: str) -> str | None:
    """The task that the cues of a text speak for; None where there are none."""
    _, index = read(text)
    return None if index is None else TASKS[index]
