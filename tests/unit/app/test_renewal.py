"""A server that runs for longer than its certificate is valid stays reachable."""

import ssl
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from grange.app import certificates, key_files, pki
from grange.app.key_files import Keys, KeysUnusable
from grange.app.renewal import Renewal
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.tasks import Nursery
from grange.sim.pytest_plugin import Records

DAY_S = 86_400.0


def shown(server: ssl.SSLContext, keys: Keys) -> x509.Certificate:
    """The certificate that a client gets, by a handshake in memory."""
    client = ssl.create_default_context(cadata=keys.ca_pem.decode())
    client.verify_flags = ssl.VerifyFlags.VERIFY_DEFAULT
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE  # its clock is not virtual
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return x509.load_der_x509_certificate(one.getpeercert(binary_form=True) or b"")


async def test_certificate_is_valid_at_any_time(
    tmp_path: Path, clock: Clock, log: Logger, records: Records
) -> None:
    names = ["localhost"]
    long_ago = clock.now() - timedelta(days=350)
    keys = certificates.ensure(tmp_path, names=names, now=long_ago)
    context, failures = keys.server_context(), [KeysUnusable("full"), OSError("full")]

    async def renew(now: datetime) -> Keys:
        if failures:
            raise failures.pop()
        return await pki.in_process(tmp_path, names, now)

    first = shown(context, keys)
    assert first.not_valid_after_utc < clock.now() + timedelta(days=20)
    async with Nursery() as nursery:
        nursery.start(Renewal(context, renew, clock=clock, log=log).run())
        await clock.sleep(20 * DAY_S)
        nursery.cancel()
    assert shown(context, keys).serial_number != first.serial_number
    assert shown(context, keys).not_valid_after_utc > clock.now() + timedelta(days=300)
    assert keys.ca_pem == key_files.read(tmp_path).ca_pem
    reported = [event for event, _ in records]
    assert reported.count("server certificate loaded") == 1
    assert reported.count("server certificate not renewed") == 2
