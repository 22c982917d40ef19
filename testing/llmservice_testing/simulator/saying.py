"""What a client hears of a fault."""

from __future__ import annotations

import asyncio

from llmservice_testing.simulator.faults import HUGE_BODY_BYTES, Fault, Says
from llmservice_testing.simulator.wire import Connection, Reply


async def say(fault: Fault, truth: Reply | None, connection: Connection) -> Reply | None:
    """The reply of a fault; None where what there is to say was written, or there is nothing to say."""
    match fault.says:
        case Says.TRUTH:
            return truth
        case Says.STATUS:
            return Reply(fault.status, fault.body, headers=fault.headers)
        case Says.NOTHING:
            await _until_lost(connection)
        case Says.CUT:
            connection.cut()
        case Says.CUT_IN_BODY:
            whole = (truth or Reply(200, b'{"status":"paused"}')).encode(keep_alive=True)
            await connection.write(whole[:-8])
            connection.cut()
        case Says.NOT_HTTP:
            await connection.write(b"SSH-2.0-OpenSSH_9.6\r\n\x00\x01\x02\xff\r\n\r\n")
            connection.cut()
        case Says.NOT_JSON:
            return Reply(200, b'{"is_paused": tru')
        case Says.WRONG_SHAPE:
            return Reply.json(["paused", {"is_paused": "perhaps"}])
        case Says.HUGE:
            return Reply(200, b'{"padding":"' + b"x" * HUGE_BODY_BYTES + b'"}')
        case Says.ENDLESS:
            await connection.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[")
            while not connection.lost:
                await connection.write(b"0," * 4096)
                await asyncio.sleep(0)
    return None


async def _until_lost(connection: Connection) -> None:
    """Return once the client has given up."""
    lost = asyncio.Event()
    connection.on_lost(lost.set)
    if not connection.lost:
        await lost.wait()
