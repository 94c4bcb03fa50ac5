"""Objects that nodes upload: their names, where the bytes go, and that they are what was said.

A name comes from the task's template below the directory `uploads` of the settings; what a node may
choose of it cannot leave its place. Bytes go to a signed URL: the object store's own where there is
one, else this service's.
Invariants: a URL is good for one name, one SHA-256, one size and one hour, and creates the object
once; work counts when the objects themselves, read back, have the promised hash.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from dataclasses import asdict

from fastapi.concurrency import run_in_threadpool

from infra.pool import wire
from infra.pool.core.state import Group, Node
from infra.pool.service.errors import BadRequest, Conflict, Forbidden, NotThere, TooLarge, TooMany
from infra.pool.service.pool import Pool
from infra.pool.service.store import Upload
from infra.pool.service.view import substitute
from infra.storage import Store
from infra.storage.errors import AlreadyExists, NotFound

GRANT_SECONDS = 3600.0
LOOKS_AT_ONCE = 4
"""Objects that are read back at a time; each is at most MAX_UPLOAD_BYTES."""
DEFAULT_TEMPLATE = (
    "${TASK_ID}/${NODE_GROUP_ID}-${NODE_GROUP_SIZE}-${CURRENT_FILE_INDEX}-${NODE_GROUP_INDEX}"
    "-${ORIGINAL_NAME}"
)
VARIABLES = frozenset(
    {
        "ORIGINAL_NAME",
        "NODE_GROUP_ID",
        "NODE_GROUP_SIZE",
        "NODE_GROUP_INDEX",
        "TOTAL_UPLOAD_COUNT_AFTER",
        "CURRENT_FILE_INDEX",
        "TASK_ID",
    }
)
_ORIGINAL = re.compile(r"[A-Za-z0-9_@+=-][A-Za-z0-9._@+=-]{0,199}")
_PART = re.compile(r"[A-Za-z0-9_@+=,: -][A-Za-z0-9._@+=,: -]{0,199}")


class Uploads:
    """What nodes may write, and whether they did."""

    def __init__(self, pool: Pool, store: Store, secret: bytes):
        self._pool = pool
        self._store = store
        self._secret = secret
        self._locks: dict[str, asyncio.Lock] = {}
        self._names: dict[str, str] = {}
        """Names that are being granted, and to which node; the database may not have them yet."""
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._looked_at: set[str] = set()
        """Groups whose files are being looked at."""

    async def grant(self, node: Node, ask: wire.UploadRequest, base_url: str) -> wire.UploadGrant:
        """Where the node may put an object; the same again for the same name in the same group."""
        pool = self._pool
        if ask.file_size > pool.settings.max_upload_bytes:
            most = pool.settings.max_upload_bytes
            raise TooLarge(f"the object has {ask.file_size} bytes; allowed are {most}")
        task = pool.tasks.get(ask.task_id)
        if task is None:
            raise NotThere(f"there is no task {ask.task_id!r}")
        group = pool.state.groups.get(node.group_id)
        if group is None or group.task_id != ask.task_id:
            raise Forbidden("the node's group does not have this task", "NOT_YOUR_TASK")
        if _ORIGINAL.fullmatch(ask.file_name) is None:
            raise BadRequest(
                f"file name {ask.file_name[:80]!r}: allowed are letters, digits and ._@+=- without "
                "a dot in front",
                "BAD_FILE_NAME",
            )
        rank, size = group.members.index(node.node_id), len(group.members)
        # One at a time for a node: the count is part of the name.
        async with self._locks.setdefault(node.node_id, asyncio.Lock()):
            row = await self._row(node, ask, task, group, (rank, size))
        pool.upload_requests[ask.task_id, node.node_id] += 1
        url, headers = await self._signed(row, base_url)
        return wire.UploadGrant(signed_url=url, headers=headers, file_name=row.file_name)

    async def _row(
        self,
        node: Node,
        ask: wire.UploadRequest,
        task: wire.TaskView,
        group: Group,
        place: tuple[int, int],
    ) -> Upload:
        pool, now = self._pool, time.time()
        most = pool.settings.uploads_per_hour
        left = [name for name, node_id in self._names.items() if node_id == node.node_id]
        if left:
            # The database did not take them in time. It will: no second row must come after them.
            await pool.journal.settled()
            for name in left:
                del self._names[name]
        known, since, index = await pool.store.uploads(
            node.node_id, group.group_id, ask.file_name, now - 3600.0
        )
        if known is not None:
            if (known.sha256, known.size) != (ask.sha256, ask.file_size):
                raise Conflict(
                    f"{ask.file_name!r} was granted for other bytes; choose another name",
                    "OTHER_BYTES",
                )
            return known
        if since >= most:
            raise TooMany(f"more than {most} uploads within an hour", retry_after=60.0)
        template = (task.storage_config and task.storage_config.file_name_template) or ""
        values = {
            "ORIGINAL_NAME": ask.file_name,
            "NODE_GROUP_ID": group.group_id,
            "NODE_GROUP_SIZE": str(place[1]),
            "NODE_GROUP_INDEX": str(place[0]),
            "TOTAL_UPLOAD_COUNT_AFTER": str(index + 1),
            "CURRENT_FILE_INDEX": str(index),
            "TASK_ID": task.id,
        }
        name = f"{pool.settings.uploads}/{substitute(template or DEFAULT_TEMPLATE, values)}"
        if name in self._names or await pool.store.upload(name) is not None:
            raise Conflict(
                f"the name {name!r} is taken; the task's file_name_template must tell groups and "
                "files apart",
                "NAME_TAKEN",
            )
        row = Upload(
            file_name=name,
            node_id=node.node_id,
            group_id=group.group_id,
            task_id=task.id,
            original=ask.file_name,
            version=group.version,
            at=now,
            sha256=ask.sha256,
            size=ask.file_size,
        )
        self._names[name] = node.node_id
        pool.journal.batch.uploads.append(asdict(row))
        pool.journal.wake()
        await pool.journal.settled()
        del self._names[name]
        return row

    async def _signed(self, row: Upload, base_url: str) -> tuple[str, dict[str, str]]:
        if self._store.protocol == "s3":
            return await run_in_threadpool(
                self._store.signed_put, row.file_name, row.size, row.sha256, int(GRANT_SECONDS)
            )
        expires = int(time.time() + GRANT_SECONDS)
        claim = json.dumps([row.file_name, row.sha256, row.size, row.node_id, expires]).encode()
        mac = hmac.digest(self._secret, claim, "sha256")
        token = base64.urlsafe_b64encode(mac + claim).decode().rstrip("=")
        return f"{base_url}/storage/objects/{token}", {"content-length": str(row.size)}

    def claimed(self, token: str) -> tuple[str, str, int, str]:
        """(name, SHA-256, size, node) that a URL of ours is good for."""
        try:
            data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except ValueError:
            data = b""
        mac, claim = data[:32], data[32:]
        if not hmac.compare_digest(mac, hmac.digest(self._secret, claim, "sha256")):
            raise Forbidden("this upload URL was not signed here", "BAD_UPLOAD_URL")
        name, sha256, size, node_id, expires = json.loads(claim)
        if time.time() > expires:
            raise Forbidden("this upload URL has expired; request another", "UPLOAD_URL_EXPIRED")
        return str(name), str(sha256), int(size), str(node_id)

    async def write(self, name: str, sha256: str, data: bytes) -> None:
        """Create the object; it may be there already with the same bytes."""
        found = await run_in_threadpool(_sha256, data)
        if found != sha256:
            raise Conflict(f"the bytes have SHA-256 {found}, promised was {sha256}", "OTHER_SHA256")
        try:
            await run_in_threadpool(self._store.write_bytes, name, data)
        except AlreadyExists:
            await self.check(wire.StoredFile(name=name, sha256=sha256, size=len(data)))

    async def check(self, file: wire.StoredFile) -> None:
        """Refuse an object that is not there, or is another than was promised."""
        async with self._looks:
            await run_in_threadpool(self._look, file)

    def _look(self, file: wire.StoredFile) -> None:
        try:
            size = self._store.size(file.name)
            if size != file.size:
                raise Conflict(
                    f"{file.name!r} has {size} bytes, promised were {file.size}", "OTHER_SIZE"
                )
            found = _sha256(self._store.read_bytes(file.name))
        except NotFound:
            raise Conflict(f"{file.name!r} was not uploaded", "NOT_UPLOADED") from None
        if found != file.sha256:
            raise Conflict(
                f"{file.name!r} has SHA-256 {found}, promised was {file.sha256}", "OTHER_SHA256"
            )

    async def check_granted(self, files: list[wire.StoredFile], group: Group) -> None:
        """Refuse files that no member of the group was granted, and such as differ."""
        if len({file.name for file in files}) != len(files):
            raise BadRequest("a file is named twice", "FILE_TWICE")
        if group.group_id in self._looked_at:
            raise TooMany("files of this group are being looked at", retry_after=1.0)
        self._looked_at.add(group.group_id)
        try:
            for file in files:
                row = await self._pool.store.upload(file.name)
                if row is None or row.group_id != group.group_id:
                    raise Conflict(f"{file.name!r} was not granted to this group", "NOT_GRANTED")
                if (row.sha256, row.size) != (file.sha256, file.size):
                    raise Conflict(f"{file.name!r} was granted for other bytes", "OTHER_BYTES")
            for file in files:
                await self.check(file)
        finally:
            self._looked_at.discard(group.group_id)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check_template(template: str | None) -> None:
    """Refuse a file name template that could lead elsewhere, or has unknown variables."""
    if template is None:
        return
    unknown = set(re.findall(r"\$\{([^}]*)\}", template)) - VARIABLES
    if unknown or "$" in re.sub(r"\$\{[A-Z_]+\}", "", template):
        raise BadRequest(
            f"file_name_template {template[:200]!r}: unknown variables "
            f"{sorted(unknown)}; allowed are {sorted(VARIABLES)}",
            "BAD_TEMPLATE",
        )
    filled = substitute(template, dict.fromkeys(VARIABLES, "x"))
    if not all(_PART.fullmatch(part) for part in filled.split("/")):
        raise BadRequest(
            f"file_name_template {template[:200]!r}: allowed are names joined by single slashes, "
            "of letters, digits and ._@+=,:- without a dot in front",
            "BAD_TEMPLATE",
        )
