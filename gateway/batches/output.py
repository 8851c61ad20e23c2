"""A batch's output file or error file, written from the results of its lines, in their order."""

from gateway.batches.types import Batch
from gateway.files.types import StoredFile
from gateway.house import House
from gateway.store.batches import select_results

RESULTS_AT_A_TIME = 50


class OutputFile:
    def __init__(self, house: House, batch: Batch, *, ok: bool) -> None:
        self._house = house
        self._batch = batch
        self._ok = ok

    async def write(self) -> StoredFile | None:
        """Still to be made visible; None where there is nothing to write."""
        batch, line = self._batch, 0
        writing = None
        while results := await select_results(
            self._house.database, batch.id, ok=self._ok, after=line, limit=RESULTS_AT_A_TIME
        ):
            if writing is None:
                writing = await self._house.files.begin(batch.tenant_id, unbounded=True)
            await writing.write(b"".join(result.answer + b"\n" for result in results))
            line = results[-1].line
        if writing is None:
            return None
        name = f"{batch.id}_{'output' if self._ok else 'error'}.jsonl"
        ttl_s = batch.output_ttl_s or self._house.files.config.batch_ttl_days * 86_400
        return await writing.close(filename=name, purpose="batch_output", ttl_s=ttl_s)
