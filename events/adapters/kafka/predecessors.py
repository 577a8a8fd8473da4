"""The member that an earlier process of our name left in the group when it was killed.

The brokers find out by themselves, when its session ends (6 s); until then nobody gets its partitions, nor does anyone
who joins. Whoever has its name knows sooner: the kernel has given us the lock of its data folder, or (in a group that
does work) its producer has just been fenced by ours. Should it live all the same, it joins again, and what it owned is
fenced in the log: a hand-over too many, no more.

Static members (`group.instance.id`) come back at once too, but do not leave in order, so others would wait for the
session at each SIGTERM; and two processes of one name fence one another for ever.
"""

from __future__ import annotations

from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove


def dismiss(client: KafkaAdminClient, group: str, name: str) -> int:
    """Take the members whose client id is `name` out of the group; how many. Raises KafkaError.

    Call it before joining with this client id. It needs the right to read the group, as joining does.
    """
    described = client.describe_groups([group]).get(group, {})
    left = [MemberToRemove(one["member_id"]) for one in described.get("members") or () if one["client_id"] == name]
    if left:
        client.remove_group_members(group, left)
    return len(left)
