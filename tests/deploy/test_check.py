"""The check of a kit: each way in which it can be loosened, or not be ready, is a line."""

import shutil
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

pytest.importorskip("nvflare")

from kits import PARTIES, change, make_federation

from synthfair.deploy.check import problems
from synthfair.deploy.kit import differences, harden
from synthfair.errors import InputError

OWN, AUTHORIZATION = "local/synthfair.json", "local/authorization.json"
RESOURCES = "local/resources.json"
CLIENT, SERVER = "startup/fed_client.json", "startup/fed_server.json"
LEAD, ADMIN = "lead@hub.org", "startup/fed_admin.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_federation(tmp_path_factory.mktemp("federation"))


@pytest.fixture
def kit(made, tmp_path):
    def copied(name):
        shutil.copytree(made[name], tmp_path / name)
        if name == "localhost":
            harden(tmp_path / name)  # its stores lie in the kit
        return tmp_path / name

    return copied


def said_of(folder, path, key=""):
    """Whether a line is about a path in a kit, and begins with this key of its document."""
    return any(line.startswith(f"{folder / path}: {key}") for line in problems(folder))


@pytest.mark.parametrize("name", PARTIES)
def test_kit_hardened_is_ready(kit, name):
    assert problems(kit(name)) == []


@pytest.mark.parametrize(("content", "where"), [
    ({"a": 1, "b": [{"c": "x"}], "d": [2]}, []), ({"a": 1, "b": [{"c": "x"}]}, ["d"]),
    ({"a": 1.0, "b": [{"c": "y"}], "d": 0}, ["a", "b.0.c"]), ([], [""]),
    ({"a": True, "b": [{"c": "x"}, 1], "d": 0, "e": 1}, ["a", "b", "e"]),
    ({"a": None, "b": [{"c": "x", "f": 1}], "d": 0}, ["a", "b.0.f"]),
])  # fmt: skip
def test_difference_is_named_wherever_it_is(content, where):
    must = {"a": 1, "b": [{"c": "x"}], "d": "ANYTHING"}
    assert [place for place, _ in differences(content, must)] == where


@pytest.mark.parametrize(("name", "file", "key", "value"), [
    ("a", AUTHORIZATION, "permissions.lead.byoc", "any"), ("a", AUTHORIZATION, "more", 1),
    ("a", RESOURCES, "allow_log_streaming", True), ("a", CLIENT, "client.fqsn", "b"),
    ("a", RESOURCES, "class_allow_list", ["*"]),
    ("localhost", RESOURCES, "components.1.args.uri_root", "/tmp/jobs"),
    ("a", CLIENT, "servers.0.name", "other"), ("a", CLIENT, "require_signed_jobs", False),
    ("localhost", SERVER, "servers.0.admin_server", "evil.org"),
    (LEAD, ADMIN, "admin.server_identity", "evil.org"),
    (LEAD, ADMIN, "admin.username", "other@hub.org"),
    (LEAD, "local/resources.json.default", "admin.with_debug", True),
    ("a", "local/log_config.json.default", "handlers.x", {"()": "os.system"}),
])  # fmt: skip
def test_setting_of_each_file_is_compared(kit, name, file, key, value):
    folder = kit(name)
    change(folder / file, {key: value})
    assert said_of(folder, file, key)


TARGET, IDENTITY = "servers.0.service.target", "servers.0.identity"


@pytest.mark.parametrize(("name", "file", "changes", "said"), [
    # It connects elsewhere.
    ("a", CLIENT, {TARGET: "evil.org:8002"}, IDENTITY),
    ("a", CLIENT, {TARGET: "evil.org:8002", IDENTITY: "evil.org"}, "evil.org:8002"),
    ("a", CLIENT, {TARGET: "localhost:8003"}, "localhost:8003"),
    ("a", CLIENT, {TARGET: "b:8002", IDENTITY: "b"}, "a dot"),
    (LEAD, ADMIN, {"admin.host": "b", "admin.server_identity": "b"}, "a dot"),
    ("localhost", SERVER, {TARGET: "a b"}, "names no server"),
    ("localhost", SERVER, {"servers": None}, "names no server"),
    # Its party's own settings are not ready.
    ("a", OWN, {"data": "no.csv"}, "no.csv"), ("a", OWN, {"key": "no.key"}, "no.key"),
    ("a", OWN, {"schema": "no.json"}, "no.json"), ("a", OWN, {"limits": {}}, "kinds"),
    ("a", OWN, {"limits.least_epsilon_left": 1.0}, "has no limit"),
    ("a", OWN, {"limits.most_epsilon": 1.0}, "has no limit"),
    ("a", OWN, {"limits.most_epsilon": 1.0, "limits.without_epsilon": True}, "exclude"),
    ("a", OWN, {"limits.most_epsilon": -1}, "most_epsilon"), ("a", OWN, {"x": True}, "x: "),
    ("localhost", OWN, {"schema": "no.json"}, "no.json"),
    ("localhost", OWN, {"tests": ["no.csv"]}, "no.csv"), ("localhost", OWN, {"org": "a"}, "org"),
    ("localhost", OWN, {"trusted": "no.csv"}, "no.csv"),
    ("localhost", OWN, {"aggregators": "keys"}, "keys"),
    ("sums-a", OWN, {"limits": {}}, "no task"), ("sums-a", OWN, {"key": "no"}, "no:"),
    ("sums-a", OWN, {"clients": "none"}, "none"),
])  # fmt: skip
def test_kit_that_is_not_ready_is_refused(kit, name, file, changes, said):
    folder = kit(name)
    change(folder / file, changes)
    assert any(said in line for line in problems(folder))


@pytest.mark.parametrize(("name", "path", "said"), [
    ("a", "startup/sub_start.sh", ""), ("a", "startup/custom/own.py", "startup/custom"),
    ("a", "local/custom/own.py", "local/custom"), ("a", "local/privacy.json", ""),
    ("a", "local/keys/run.sh", ""), ("a", "local/aggregators/run.sh", ""),
    ("localhost", "startup/client.key", ""), (LEAD, "startup/custom/own.py", "startup/custom"),
    ("localhost", "local/keys/more/a.pub", "local/keys/more"),
    (LEAD, "local/custom/own.py", "local/custom"),
])  # fmt: skip
def test_file_that_is_not_of_the_kit_is_refused(kit, name, path, said):
    folder = kit(name)
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text("{}")
    assert said_of(folder, said or path, "not part")


@pytest.mark.parametrize(
    "path", ["startup/rootCA.pem", "local/schema.json", "startup", "local", "transfer"]
)
def test_link_is_refused(kit, tmp_path, path):
    site = kit("a")
    (site / path).rename(tmp_path / "elsewhere")
    (site / path).symlink_to(tmp_path / "elsewhere")
    assert said_of(site, path, "is a link")
    if path.startswith("local"):
        with pytest.raises(InputError, match="link"):
            harden(site)


@pytest.mark.parametrize(
    ("name", "path", "mode"),
    [("a", "", 0o750), ("a", "", 0o705), ("a", "startup/client.key", 0o604), ("a", "local/a.key", 0o640),
     ("localhost", "startup/server.key", 0o640), (LEAD, "startup/client.key", 0o640),
     ("a", "local/resources.json", 0o620), ("a", "startup/rootCA.pem", 0o602),
     ("sums-a", "sums/sums-a.key", 0o640)],
)  # fmt: skip
def test_file_that_others_read_or_write_is_refused(kit, name, path, mode):
    folder = kit(name)
    (folder / path).chmod(mode)
    assert any(str(folder / path) in line and "chmod" in line for line in problems(folder))


def test_path_that_the_engine_would_split_is_refused(made, tmp_path):
    site = shutil.copytree(made["a"], tmp_path / "a kit")
    assert len(problems(site)) == 1
    assert said_of(site, "", "has a blank")


STRANGER = rsa.generate_private_key(65537, 2048)


def certificate(
    made, key, *, name="a", role="client", org="org_a", hosts=("a",), since=400, days=100, by=None
):
    """A certificate as the hub could sign it, or another."""
    ca, now = made["a"].parents[1] / "hub" / "ca", datetime.now(UTC)
    root = x509.load_pem_x509_certificate((ca / "rootCA.pem").read_bytes())
    signer = by or serialization.load_pem_private_key((ca / "rootCA.key").read_bytes(), None)
    subject = x509.Name.from_rfc4514_string(f"1.2.840.113549.1.9.2={role},O={org},CN={name}")
    new = x509.CertificateBuilder(root.subject, subject, key.public_key(), 1,
                                  now - timedelta(since), now + timedelta(days))  # fmt: skip
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    new = new.add_extension(names, critical=False) if hosts else new
    return new.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(("name", "changes", "said"), [
    ("a", {}, None), ("a", {"days": -1}, "expired"), ("a", {"since": -1}, "not valid"),
    ("a", {"role": "server"}, "'server'"), ("a", {"role": "lead"}, "'lead'"),
    ("a", {"org": "org_b"}, "org_b"), ("a", {"name": "b", "hosts": ["b"]}, "client.fqsn"),
    ("a", {"hosts": []}, "[]"), ("a", {"hosts": ["a", "hub.org"]}, "hub.org"),
    ("a", {"by": STRANGER}, "rootCA.pem"), (LEAD, {"role": "member"}, "'member'"),
    ("localhost", {"role": "client"}, "'client'"),
])  # fmt: skip
def test_certificate_must_be_of_the_kits_party(kit, made, name, changes, said):
    startup, kind = kit(name) / "startup", "server" if name == "localhost" else "client"
    content = (startup / f"{kind}.key").read_bytes()
    key = serialization.load_pem_private_key(content, None)
    (startup / f"{kind}.crt").write_bytes(certificate(made, key, **changes))
    found = problems(startup.parent)
    assert any(said in line for line in found) if said else found == []


def test_certificates_that_end_soon_are_all_named(kit, monkeypatch):
    monkeypatch.setattr("synthfair.deploy.check.MIN_VALIDITY", timedelta(10**5))
    site = kit("a")
    for name in ("client.crt", "rootCA.pem"):
        assert said_of(site, f"startup/{name}", "expires on")


def test_key_must_be_that_of_the_certificate(kit, made):
    site, key = kit("a"), "startup/client.key"
    shutil.copy(made["b"] / key, site / key)
    assert problems(site) == [f"{site}/{key}: is not the key of client.crt"]
    (site / key).write_text("none")
    assert said_of(site, key, "must be a private key")
    for content in (b"", b"\xff", b"-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n"):
        (site / "startup" / "client.crt").write_bytes(content)
        assert said_of(site, "startup/client.crt", "must be one certificate")


def test_root_with_a_second_authority_is_refused(kit, made):
    site = kit("a")
    with (site / "startup" / "rootCA.pem").open("ab") as file:
        file.write(certificate(made, STRANGER, by=STRANGER))
    assert said_of(site, "startup/rootCA.pem", "must be one")


@pytest.mark.parametrize(("name", "missing"), [
    ("sums-a", "sums/sums-a.answers"), ("a", "local/aggregators/sums-b.pub"), ("a", "local"),
])  # fmt: skip
def test_kit_with_a_part_missing_is_refused(kit, name, missing):
    folder = kit(name)
    path = folder / missing
    path.unlink() if path.is_file() else shutil.rmtree(path)
    assert any(str(path.parent) in line for line in problems(folder))
