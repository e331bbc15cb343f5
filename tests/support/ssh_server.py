"""An SSH server in a thread of the test's process. It runs its clients' commands on this machine, as this user."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import asyncssh


@contextlib.contextmanager
def ssh_server(folder: Path) -> Iterator[dict[str, object]]:
    """Start the server; yield asyncssh's options for a connection: the port, and a key that the server accepts."""
    key, own = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(folder / "key"))
    key.write_public_key(str(folder / "authorized"))
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ports: list[int] = []

    async def serve() -> None:
        async with asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[own],
            authorized_client_keys=str(folder / "authorized"),
            process_factory=_run,
            encoding=None,
        ) as server:
            ports.append(server.get_port())
            ready.set()
            await stop.wait()
        # The tasks of open connections, which kill their processes.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=5)

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield {"port": ports[0], "client_keys": [str(folder / "key")], "known_hosts": None}
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


async def _run(process: asyncssh.SSHServerProcess[bytes]) -> None:
    assert process.command is not None
    child = subprocess.Popen(
        process.command,
        shell=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        await process.redirect(child.stdin, child.stdout, child.stderr)
        while child.poll() is None and not process.is_closing():
            await asyncio.sleep(0.05)
        await process.stdout.drain()
        process.exit(child.poll() or 0)
    finally:
        # To stop a worker, Dask closes its connection.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        # Awaits the ends of the pipes, which asyncssh else leaves as coroutines that were never awaited.
        process.close()
        await process.wait_closed()
