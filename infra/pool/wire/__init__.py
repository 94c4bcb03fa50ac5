"""What goes over the wire between the pool's service, its nodes and its users.

Both sides import these models; names and defaults of the original service's fields are kept, what
it lacks is added. Invariants: unknown fields are refused, but in answers, so that an old node can
talk to a newer service; every text and list has a limit; a float is finite.

Node-signed routes (infra/pool/signature.py says how):

    PUT  /nodes                     RegisterRequest  -> Registration
    POST /nodes/challenge                            -> ChallengeOffer     the clock starts
    POST /nodes/challenge/commit    ChallengeCommit  -> ChallengeReveal    the clock stops
    POST /nodes/challenge/answer    ChallengeAnswer  -> Admission
    POST /nodes/canary              CanaryResult     -> Admission
    POST /nodes/orders/{order_id}   OrderAnswer      -> Done
    POST /nodes/leave                                -> Done               after the shard in hand
    POST /nodes/gone                                 -> Done               at once
    POST /heartbeat                 Heartbeat        -> HeartbeatAnswer
    GET  /shards/{shard_id}                          -> ShardWork          only with its lease
    POST /shards/{shard_id}/result  ShardResult      -> HeartbeatAnswer    what to do next
    POST /shards/{shard_id}/failure ShardFailure     -> HeartbeatAnswer
    POST /storage/request-upload    UploadRequest    -> UploadGrant
    PUT  <signed_url of the grant>  the bytes, with the grant's headers; no signature of the node

Admin routes, `Authorization: Bearer <admin key>`:

    GET, POST /tasks      DELETE /tasks/{id}, /tasks/all
    POST /tasks/{id}/shards         ShardsRequest    -> Done
    GET  /tasks/{id}/results?after=N&wait_seconds=S  -> Results            long poll
    POST /shards/{shard_id}/verdict Verdict          -> Done
    POST /shards/{shard_id}/drop                     -> Done               if nobody has it yet
    GET, POST, DELETE /invites      InviteRequest    -> Invite
    GET  /nodes   POST /nodes/{id}/restart   GET /nodes/{id}/logs, /metrics
    POST /nodes/{id}/ban, /eject    Exclusion        -> Done
    GET  /groups, /groups/configs, /groups/{id}/logs  DELETE /groups/{id}
    POST /groups/force-regroup
    GET  /metrics, /metrics/all, /metrics/prometheus  POST /metrics  DELETE /metrics/{task_id}
    POST /ledger

Open: GET /health, /epoch, /docs, /api-docs/openapi.json. Errors are `{"success": false, "error",
"code"}` with 400, 401, 403, 404, 408, 409, 413, 429 (with Retry-After) or 503.
"""

from infra.pool.wire.base import (
    MAX_BODY_BYTES,
    MAX_UPLOAD_BYTES,
    Answer,
    Done,
    Epoch,
    Finite,
    Id,
    JsonObject,
    NodeId,
    P2pId,
    Refusal,
    Said,
    Sha256,
    ShortText,
    Shown,
)
from infra.pool.wire.nodes import (
    Admission,
    Assignment,
    CanaryResult,
    ChallengeAnswer,
    ChallengeCommit,
    ChallengeOffer,
    ChallengeReveal,
    ComputeSpecs,
    CpuSpecs,
    Exclusion,
    GpuSpecs,
    GroupView,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatData,
    Location,
    Metric,
    MetricKey,
    Order,
    OrderAnswer,
    Peer,
    RegisterRequest,
    Registration,
    Standby,
    TaskDetails,
    TaskState,
)
from infra.pool.wire.shards import (
    CanaryWork,
    NewShard,
    ResultRow,
    Results,
    ShardFailure,
    ShardResult,
    ShardsRequest,
    ShardWork,
    StoredFile,
    Verdict,
)
from infra.pool.wire.tasks import (
    Invite,
    InviteRequest,
    NodeGroupsPlugin,
    Plugins,
    SchedulingConfig,
    StorageConfig,
    TaskAnswer,
    TaskMetadata,
    TaskRequest,
    TaskView,
    UploadGrant,
    UploadRequest,
    VolumeMount,
)

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_UPLOAD_BYTES",
    "Admission",
    "Answer",
    "Assignment",
    "CanaryResult",
    "CanaryWork",
    "ChallengeAnswer",
    "ChallengeCommit",
    "ChallengeOffer",
    "ChallengeReveal",
    "ComputeSpecs",
    "CpuSpecs",
    "Done",
    "Epoch",
    "Exclusion",
    "Finite",
    "GpuSpecs",
    "GroupView",
    "Heartbeat",
    "HeartbeatAnswer",
    "HeartbeatData",
    "Id",
    "Invite",
    "InviteRequest",
    "JsonObject",
    "Location",
    "Metric",
    "MetricKey",
    "NewShard",
    "NodeGroupsPlugin",
    "NodeId",
    "Order",
    "OrderAnswer",
    "P2pId",
    "Peer",
    "Plugins",
    "Refusal",
    "RegisterRequest",
    "Registration",
    "ResultRow",
    "Results",
    "Said",
    "SchedulingConfig",
    "Sha256",
    "ShardFailure",
    "ShardResult",
    "ShardWork",
    "ShardsRequest",
    "ShortText",
    "Shown",
    "Standby",
    "StorageConfig",
    "StoredFile",
    "TaskAnswer",
    "TaskDetails",
    "TaskMetadata",
    "TaskRequest",
    "TaskState",
    "TaskView",
    "UploadGrant",
    "UploadRequest",
    "Verdict",
    "VolumeMount",
]
