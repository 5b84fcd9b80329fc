"""A real SMTP server (aiosmtpd) that the tests speak to.

    smtp_server.py CERTIFICATE KEY LOG

Prints its port. STARTTLS and AUTH are demanded. What becomes of a message is the recipient's local part: `drop` takes it
and closes the connection instead of answering to the final dot, `later` and `refused` are what they say, everybody else
is answered with 250. Each message that was received whole is one line of JSON in LOG.
"""

import asyncio
import email
import email.policy
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult


class Handler:
    def __init__(self, log):
        self.log = log

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("refused@"):
            return "550 5.1.1 <%s>: Recipient address rejected: User unknown" % address
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        to = envelope.rcpt_tos[0]
        seen = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "subject": message["subject"],
            "message_id": message["message-id"],
            "defects": len(message.defects),
            "text": message.get_body(("plain",)).get_content(),
            "html": message.get_body(("html",)).get_content(),
        }
        with open(self.log, "a") as log:
            log.write(json.dumps(seen) + "\n")
        if to.startswith("drop@"):
            server.transport.abort()
            return "250 nobody reads this"
        if to.startswith("later@"):
            return "451 4.3.0 later"
        return "250 2.0.0 OK"


def authenticate(server, session, envelope, mechanism, data):
    is_good = data.login == b"app" and data.password == b"pa55 w\xc3\xb6rd"
    # Not handled: the server itself says 535.
    return AuthResult(success=is_good, handled=False)


async def main():
    certificate, key, log = sys.argv[1:]
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    handler = Handler(log)

    def make():
        return SMTP(
            handler,
            hostname="relay.example",
            tls_context=tls,
            require_starttls=True,
            auth_required=True,
            authenticator=authenticate,
            loop=asyncio.get_running_loop(),
        )

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
