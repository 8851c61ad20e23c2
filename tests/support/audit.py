"""The audit of the books against what the upstream and the clients saw."""

import asyncio
import json
import time
from collections import defaultdict
from typing import Any

from sqlalchemy import text

from gateway.store.database import Database
from tests.support.books import Call, Seen


async def audit(database_url: str, calls: dict[str, list[Call]], seen: dict[str, Seen], wait_s: float) -> list[str]:
    """What is wrong, in words, once every request that reached the upstream has its row, or the time is up."""
    database = Database(database_url)
    deadline = time.monotonic() + wait_s
    try:
        while True:
            requests = {row.id: row for row in await _rows(database, "SELECT * FROM requests")}
            if calls.keys() <= requests.keys() or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.1)
        attempts: dict[str, list[Any]] = defaultdict(list)
        for row in await _rows(database, "SELECT * FROM attempts ORDER BY request_id, attempt"):
            attempts[row.request_id].append(row)
    finally:
        await database.aclose()
    faults = [f"{each}: reached the upstream and has no row" for each in calls.keys() - requests.keys()]
    for identifier, row in requests.items():
        wrong = _faults_of(row, attempts[identifier], calls.get(identifier, []), seen.get(identifier, Seen()))
        faults += [f"{identifier} ({row.status}): {fault}" for fault in wrong]
    return faults


async def _rows(database: Database, query: str) -> list[Any]:
    async with database.read() as connection:
        return list((await connection.execute(text(query))).all())


def _faults_of(row: Any, attempts: list[Any], calls: list[Call], seen: Seen) -> list[str]:
    faults = []
    if row.cost_nanousd != sum(each.cost_nanousd for each in attempts):
        faults.append("its cost is not that of its attempts")
    if [each.attempt for each in attempts] != list(range(len(attempts))):
        faults.append("its attempts are not numbered one by one")
    unsent = len(attempts) - len(calls)
    if unsent not in ((0,) if row.status == "ok" else (0, 1)):  # one may have been noted and not have left any more
        faults.append(f"{len(calls)} calls reached the upstream, {len(attempts)} are booked")
    booked = (row.prompt_tokens, row.completion_tokens)
    if row.status == "ok":
        if row.estimated or not calls or booked != calls[-1].usage:
            faults.append(f"{booked} is booked for {calls}")
    elif seen.whole:
        faults.append("its client got the whole answer")
    elif unsent == 0 and calls and calls[-1].num_pieces:  # a stream that was cut off
        if not row.estimated:
            faults.append("it was cut off and is not marked estimated")
        if not seen.num_pieces <= row.completion_tokens <= calls[-1].num_pieces:
            faults.append(f"{row.completion_tokens} tokens; sent {calls[-1].num_pieces}, received {seen.num_pieces}")
    elif row.completion_tokens:
        faults.append(f"{row.completion_tokens} tokens of an answer that never began")
    return faults


def tell(faults: list[str]) -> str:
    return json.dumps(faults[:20], indent=1)
