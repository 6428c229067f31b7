"""`python3 docker/make_secrets.py HOST`: the passwords and keys of compose.yml, each in a file.

Writes what is missing in docker/secrets and leaves what is there; needs Python and openssl only.
The folder is its owner's alone; the files in it can be read by the services' own accounts, to whom
they are mounted. Without a certificate it makes one that browsers warn of, for a first look.
"""

import base64
import json
import re
import secrets
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ACL = HERE / "redis" / "users.acl"


def contents(value: dict[str, str]) -> dict[str, str]:
    """File name -> content; value: those that several of them share."""
    acl = (
        ACL.read_text()
        .replace(">change-me-web", f">{value['web_redis_password']}")
        .replace(">change-me-worker", f">{value['worker_redis_password']}")
    )
    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    keys = [{"accessKey": value["s3_key"], "secretKey": value["s3_secret"]}]
    return value | {
        "secret_key": secrets.token_urlsafe(64),
        "database_url": f"postgresql://concord:{value['database_password']}@postgres:5432/concord",
        "database_owner_url": (
            f"postgresql://concord_owner:{value['database_owner_password']}@postgres:5432/concord"
        ),
        "web_redis_url": f"redis://concord-web:{value['web_redis_password']}@broker:6379/0",
        "worker_redis_url": f"redis://concord-worker:{value['worker_redis_password']}@broker:6379/0",
        "cache_url": f"redis://concord-web:{value['web_redis_password']}@cache:6379/0",
        "broker_users.acl": acl,
        "cache_users.acl": "\n".join(acl.splitlines()[:2]) + "\n",  # the web side's user alone
        "metrics_token": secrets.token_urlsafe(32),
        "grafana_password": secrets.token_urlsafe(24),
        "email_url": "",
        "oidc_client_secret": "",
        "backup_key": base64.b64encode(secrets.token_bytes(32)).decode(),
        "store.json": json.dumps(
            {"identities": [{"name": "concord", "credentials": keys, "actions": everything}]}
        ),
    }


def shared(folder: Path) -> dict[str, str]:
    """Passwords that stand in several files: as they are, so that the files agree."""
    found = {}
    for name in (
        *("postgres_password", "database_password", "database_owner_password"),
        *("web_redis_password", "worker_redis_password", "s3_key", "s3_secret"),
    ):
        path = folder / name
        found[name] = path.read_text().strip() if path.exists() else secrets.token_urlsafe(24)
    return found


def certificate(folder: Path, host: str) -> bool:
    """Whether one was made."""
    chain, key = folder / "fullchain.pem", folder / "privkey.pem"
    if chain.exists() or key.exists():
        return False
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "90"),
            *("-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"),
            *("-keyout", str(key), "-out", str(chain)),
        ],
        check=True,
        capture_output=True,
    )
    return True


def main() -> int:
    if len(sys.argv) not in (2, 3) or not re.fullmatch(r"[a-z0-9.-]+", sys.argv[1]):
        print("python3 docker/make_secrets.py HOST [FOLDER], such as concord.example.org")
        return 2
    host = sys.argv[1]
    folder = Path(sys.argv[2]) if sys.argv[2:] else HERE / "secrets"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    made = []
    for name, content in contents(shared(folder)).items():
        path = folder / name
        if not path.exists():
            path.write_text(content)
            made.append(name)
    if certificate(folder, host):
        made += ["fullchain.pem", "privkey.pem"]
        print("The certificate is self-signed: browsers will warn. Put your own in its place.")
    for path in folder.iterdir():
        path.chmod(0o444)
    print(
        f"{len(made)} files made in {folder}, {len(list(folder.iterdir())) - len(made)} were there."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
