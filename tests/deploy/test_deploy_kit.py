"""Kits: hardened, checked in each way in which they can be loosened, and started in a clean environment."""

import inspect
import json
import os
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from builders import make_schema, make_table
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

pytest.importorskip("nvflare")

from kits import make_kits
from projects import JOB, change, write_project

from synthfair.cli import main
from synthfair.cli.deploy import job as job_command
from synthfair.deploy import kit as kit_module
from synthfair.deploy.check import problems
from synthfair.deploy.kit import description, differences, harden, require_engine
from synthfair.deploy.project import read_project, write_jobs
from synthfair.errors import InputError
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import make_keys

PARTIES = {"localhost": "server", "a": "client", "b": "client", "lead@hub.org": "admin"}
OWN = "local/synthfair.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The parties' folders: each kit as its party would fill it in."""
    folder = tmp_path_factory.mktemp("federation")
    agreed = read_project(write_project(folder))
    kits = make_kits(folder, PARTIES)
    for kit in kits.values():
        harden(kit, agreed)
    for name in ("a", "b"):
        (kits[name] / "data").mkdir()
        make_table().to_csv(kits[name] / "data" / "table.csv", index=False)
        public, _ = make_keys(kits[name] / "local" / f"{name}.key")
        shutil.copy(public, kits["localhost"] / "local" / "keys")
    return folder


@pytest.fixture
def kit(made, tmp_path):
    def copied(name):
        shutil.copytree(made / name / "kit", tmp_path / name)
        if name == "localhost":
            harden(tmp_path / name)  # its stores lie in the kit
        return tmp_path / name

    return copied


@pytest.mark.parametrize("name", PARTIES)
def test_a_hardened_kit_is_ready(kit, name):
    assert problems(kit(name)) == []


@pytest.mark.parametrize(
    ("name", "loaded"), [("localhost", "JobController"), ("a", "SiteExecutor")]
)
def test_a_job_can_have_one_class_loaded(kit, name, loaded):
    settings = json.loads((kit(name) / "local" / "resources.json").read_text())
    assert settings["class_allow_list"] == [f"synthfair.deploy.flare.{loaded}"]
    assert settings["class_list_enforcement_mode"] == "enforce"
    assert settings["app_validator"]["path"] == "synthfair.deploy.job_validator.JobValidator"


def test_the_engines_own_defaults_are_refused(made, tmp_path):
    """A kit as ``nvflare package`` makes it: nothing of it is replaced or removed."""
    fresh = make_kits(tmp_path, {"a": "client"})["a"]
    found = problems(fresh)
    for file in ("sub_start.sh", "resources.json.default", "authorization.json", OWN):
        assert any(file in line for line in found), file
    # With its default list of classes in the place of ours.
    from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

    harden(fresh, read_project(made / "project.yml"))
    change(fresh / "local" / "resources.json",
           lambda r: r.update(class_allow_list=DEFAULT_CLASS_ALLOW_LIST))  # fmt: skip
    assert any("class_allow_list" in line for line in problems(fresh))


# What is proposed to a party


def test_a_project_proposes_limits_and_brings_the_schema(made):
    own = json.loads((made / "a" / "kit" / OWN).read_text())
    assert own["limits"]["kinds"] == ["surrogate"]
    assert (own["org"], own["key"]) == ("org_a", "a.key")
    assert (made / "a" / "kit" / "local" / "schema.json").read_text() == make_schema().to_json()


def test_without_a_project_the_organisation_is_that_of_the_certificate(kit):
    site = kit("a")
    (site / OWN).unlink()
    assert main(["deploy", "harden", str(site)]) == 0
    own = json.loads((site / OWN).read_text())
    assert (own["org"], "limits" in own) == ("org_a", False)
    assert any("kinds allow none" in line for line in problems(site))


def test_the_partys_own_file_is_kept(kit, made):
    site = kit("a")
    before = (site / OWN).read_bytes()
    for project in (None, read_project(made / "project.yml")):
        assert harden(site, project) is None
        assert (site / OWN).read_bytes() == before


def test_a_project_that_does_not_name_the_party_changes_nothing(kit, tmp_path):
    site, sites = kit("a"), [{"name": "other", "org": "bank"}]
    (site / OWN).unlink()
    (site / "local" / "resources.json").write_text("{}")
    with pytest.raises(InputError, match="no 'a'; its sites are other"):
        harden(site, read_project(write_project(tmp_path, sites=sites)))
    assert (site / "local" / "resources.json").read_text() == "{}"


# What is loosened


def another_server(host, port=8002):
    """An edit of a site's settings by which it connects elsewhere, in all places alike."""

    def edit(document):
        (server,) = document["servers"]
        server["identity"], server["service"]["target"] = host, f"{host}:{port}"

    return edit


def loosened(document):
    """Copies of a document that are changed in one place, and this place."""
    if isinstance(document, dict):
        yield document | {"more": 1}, "more"
        for key, value in document.items():
            yield {name: document[name] for name in document if name != key}, key
            for changed, place in loosened(value):
                yield document | {key: changed}, f"{key}.{place}".rstrip(".")
    elif isinstance(document, list):
        yield [*document, "*"], ""
        yield document[1:], ""
        for i, value in enumerate(document):
            for changed, place in loosened(value):
                yield [*document[:i], changed, *document[i + 1 :]], f"{i}.{place}".rstrip(".")
    else:
        yield f"{document}x", ""
        if isinstance(document, int):
            yield float(document), ""  # the same number of another type
    yield None, ""


@pytest.mark.parametrize(
    ("role", "files"),
    [("server", ["fed_server.json", "resources.json", "authorization.json"]),
     ("client", ["fed_client.json", "resources.json", "authorization.json"]),
     ("admin", ["fed_admin.json"])],
)  # fmt: skip
def test_every_setting_must_be_as_it_was_made_or_hardened(role, files):
    tree = description(role)
    tree = {name: must for name, must in (tree["startup/"] | tree["local/"]).items()
            if "settings" in must or "connection" in must}  # fmt: skip
    assert list(tree) == files
    for must in (file.get("settings") or file["connection"] for file in tree.values()):
        assert list(differences(must, must)) == []
        for content, place in loosened(must):
            assert [where for where, _ in differences(content, must)] == [place]


@pytest.mark.parametrize(
    ("name", "file", "edit", "said"),
    [
        ("localhost", "authorization", lambda d: d["permissions"]["lead"].update(byoc="any"),
         "lead.byoc is 'any'; must be 'none' (else a job brings code of its own)"),
        ("a", "authorization", lambda d: d.clear(), "permissions is missing"),
        ("a", "authorization", lambda d: d.update(more=1), "more: 1 does not belong here"),
        ("a", "resources", lambda d: d.update(allow_log_streaming=True),
         "(else the error log, which may quote the table"),
        ("localhost", "resources",
         lambda d: d["components"][1]["args"].update(uri_root="/tmp/jobs"), "/tmp/jobs"),
    ],
)  # fmt: skip
def test_what_is_loosened_is_said(kit, name, file, edit, said):
    found = kit(name)
    change(found / "local" / f"{file}.json", edit)
    lines = problems(found)
    assert all(f"{file}.json: " in line for line in lines)
    assert said in "".join(lines)


def test_stores_lie_in_the_kit_or_are_refused(kit, made):
    """As a kit was hardened before it moved, its stores lie where it was."""
    server = kit("localhost")
    shutil.rmtree(server)
    shutil.copytree(made / "localhost" / "kit", server)
    assert any("snapshot_persistor" in line for line in problems(server))


@pytest.mark.parametrize(
    "name", ["custom/sitecustomize.py", "privacy.json", "comm_config.json", "resources.json.default",
             "log_config.json", "job_resources.json"])  # fmt: skip
def test_nothing_else_lies_among_the_settings(kit, name):
    site = kit("a")
    path = site / "local" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    assert any(f"local/{name.split('/')[0]}: not part" in line for line in problems(site))


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [
        ("a", "startup/sub_start.sh", "startup/sub_start.sh"),
        ("a", "startup/custom/own.py", "startup/custom"),
        ("a", "local/keys/run.sh", "local/keys/run.sh"),
        ("a", "local/aggregators/run.sh", "local/aggregators/run.sh"),
        ("localhost", "startup/client.key", "startup/client.key"),
        ("localhost", "local/keys/run.sh", "local/keys/run.sh"),
        ("localhost", "local/keys/more/a.pub", "local/keys/more"),
        ("lead@hub.org", "startup/custom/own.py", "startup/custom"),
        ("lead@hub.org", "local/custom/own.py", "local/custom"),
    ],
)
def test_nothing_else_lies_where_the_engine_looks(kit, name, path, said):
    found = kit(name)
    (found / path).parent.mkdir(exist_ok=True)
    (found / path).write_text("")
    assert any(f"{said}: not" in line and "remove it" in line for line in problems(found))


@pytest.mark.parametrize(
    "path", ["startup/rootCA.pem", "local/schema.json", "startup", "local", "transfer"]
)
def test_links_are_refused(kit, tmp_path, path):
    site = kit("a")
    (site / path).rename(tmp_path / "elsewhere")
    (site / path).symlink_to(tmp_path / "elsewhere")
    found = problems(site)
    assert f"{site / path}: is a link; put the" in found[0]
    if path == "local":
        with pytest.raises(InputError, match="or a link"):
            harden(site)


def test_a_kit_may_lie_in_any_folder(made, tmp_path):
    """Also in one whose name has a word that the description replaces."""
    server = shutil.copytree(made / "localhost" / "kit", tmp_path / "PROJECTS" / "REPORTS-PARTY")
    harden(server)
    assert problems(server) == []


@pytest.mark.parametrize(
    ("name", "file", "edit", "said"),
    [
        ("a", "startup/fed_client.json",
         lambda d: d.update(overseer_agent={"path": "os.system"}),
         "overseer_agent: {'path': 'os.system'} does not belong here; remove it"),
        ("a", "startup/fed_client.json", lambda d: d["client"].update(fqsn="b"), "must be 'a'"),
        ("a", "startup/fed_client.json",
         lambda d: d["servers"][0]["service"].update(target="evil.org:8002"),
         "servers.0.identity is 'localhost'; must be 'evil.org'"),
        ("a", "startup/fed_client.json", another_server("evil.org"),
         "connects to evil.org:8002"),
        ("a", "startup/fed_client.json", another_server("b"), "must be a host with a dot"),
        ("a", "startup/fed_client.json", another_server("localhost", 8003), "localhost:8003"),
        ("lead@hub.org", "startup/fed_admin.json",
         lambda d: d["admin"].update(host="b", server_identity="b"), "must be a host with a dot"),
        ("a", "startup/fed_client.json",
         lambda d: d["servers"][0].update(name="other"), "servers.0.name is 'other'"),
        ("a", "startup/fed_client.json", lambda d: d.update(require_signed_jobs=False),
         "require_signed_jobs"),
        ("localhost", "startup/fed_server.json",
         lambda d: d["servers"][0].update(admin_server="evil.org"), "must be 'localhost'"),
        ("localhost", "startup/fed_server.json",
         lambda d: d["servers"][0]["service"].update(target="a b"), "names no server"),
        ("localhost", "startup/fed_server.json", lambda d: d.clear(), "names no server"),
        ("lead@hub.org", "startup/fed_admin.json",
         lambda d: d["admin"].update(server_identity="evil.org"), "must be 'localhost'"),
        ("lead@hub.org", "startup/fed_admin.json",
         lambda d: d["admin"].update(username="other@hub.org"), "must be 'lead@hub.org'"),
        ("lead@hub.org", "local/resources.json.default",
         lambda d: d["admin"].update(with_debug=True), "admin.with_debug is True; must be False"),
        ("a", "local/log_config.json.default",
         lambda d: d["handlers"].update(x={"()": "os.system"}),
         "handlers.x: {'()': 'os.system'} does not belong"),
    ],
)  # fmt: skip
def test_what_the_engine_reads_at_its_start_is_its_own(kit, name, file, edit, said):
    found = kit(name)
    change(found / file, edit)
    assert any(said in line for line in problems(found))


def test_signed_jobs_may_be_asked_for_in_words(kit):
    site = kit("a")
    change(site / "startup" / "fed_client.json", lambda d: d.update(require_signed_jobs=True))
    assert problems(site) == []


def test_what_others_read_or_write_is_refused(kit):
    site = kit("a")
    for path, mode in [(site, 0o755), (site / "startup" / "client.key", 0o644),
                       (site / "local" / "a.key", 0o640),
                       (site / "local" / "resources.json", 0o664)]:  # fmt: skip
        before = path.stat().st_mode
        path.chmod(mode)
        assert any(str(path) in line and "chmod" in line for line in problems(site)), path
        path.chmod(before)
    assert problems(site) == []


def test_a_path_that_the_engine_would_split_is_refused(made, tmp_path):
    site = shutil.copytree(made / "a" / "kit", tmp_path / "a kit")
    (line,) = problems(site)
    assert "a kit: has a blank" in line


# Whose the certificate is


def pem_of(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def certificate(
    made, key, *, name="a", role="client", org="org_a", hosts=("a",), days=100, by=None
):
    """A certificate as the hub could sign it, or another."""
    ca = made / "hub" / "ca"
    root = x509.load_pem_x509_certificate((ca / "rootCA.pem").read_bytes())
    signer = by or serialization.load_pem_private_key((ca / "rootCA.key").read_bytes(), None)
    parts = (
        (NameOID.COMMON_NAME, name),
        (NameOID.ORGANIZATION_NAME, org),
        (NameOID.UNSTRUCTURED_NAME, role),
    )
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(oid, value) for oid, value in parts]))
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days))
    )
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256())


@pytest.fixture(scope="module")
def stranger():
    return rsa.generate_private_key(65537, 2048)


CERTIFICATES = {
    "as it must be": ({}, None),
    "that has ended": ({"days": -1}, "expired"),
    "that ends soon": ({"days": 3}, "expires on"),
    "of another role": ({"role": "server"}, "its role is 'server'; must be 'client'"),
    "of a submitter": ({"role": "lead"}, "its role is 'lead'"),
    "of another organisation": ({"org": "org_b"}, "its organisation is 'org_b'"),
    "of another name": ({"name": "b", "hosts": ["b"]}, "client.fqsn is 'a'; must be 'b'"),
    "of another host, too": ({"hosts": ["a", "hub.example.org"]}, "must be for 'a' alone"),
    "of no host": ({"hosts": []}, "is valid for []; must be for 'a' alone"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CERTIFICATES)
def test_a_certificate_is_of_the_kits_party(kit, made, kind):
    site, (changes, said) = kit("a"), CERTIFICATES[kind]
    key_path = site / "startup" / "client.key"
    key = serialization.load_pem_private_key(key_path.read_bytes(), None)
    (site / "startup" / "client.crt").write_bytes(pem_of(certificate(made, key, **changes)))
    found = problems(site)
    assert any(said in line for line in found) if said else found == []


def test_a_key_is_that_of_the_certificate(kit, made):
    site = kit("a")
    shutil.copy(made / "b" / "kit" / "startup" / "client.key", site / "startup")
    assert problems(site) == [f"{site}/startup/client.key: is not the key of client.crt"]
    (site / "startup" / "client.key").write_text("none")
    assert any("must be a private key" in line for line in problems(site))
    (site / "startup" / "client.key").unlink()
    assert any("client.key: cannot read" in line for line in problems(site))


def test_a_forged_certificate_is_refused(kit, made, stranger):
    site = kit("a")
    forged = certificate(made, stranger, by=stranger)
    (site / "startup" / "client.crt").write_bytes(pem_of(forged))
    assert any("must be signed by the certificate in rootCA.pem" in line for line in problems(site))


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_said_once(kit, content):
    site = kit("a")
    (site / "startup" / "client.crt").write_bytes(content)
    assert problems(site) == [f"{site}/startup/client.crt: must be one certificate"]


def test_no_second_authority_is_trusted(kit, made, stranger):
    site = kit("a")
    with (site / "startup" / "rootCA.pem").open("ab") as file:
        file.write(pem_of(certificate(made, stranger, by=stranger)))
    assert any("must be one certificate" in line for line in problems(site))


# Whether it is ready


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda d: d.update(data="no.csv"), "no such table"),
        (lambda d: d.update(key="no.key"), "no such key"),
        (lambda d: d.update(schema="no.json"), "no.json"),
        (lambda d: d.update(limits={}), "no job may have anything"),
        (lambda d: d["limits"].update(least_epsilon_left=1.0), "has no limit"),
        (lambda d: d["limits"].update(most_epsilon=1.0, without_epsilon=False), "has no limit"),
        (
            lambda d: d["limits"].update(most_epsilon=1.0, without_epsilon=True),
            "exclude each other",
        ),
        (lambda d: d["limits"].update(most_epsilon=1.0, without_epsilon=True), "has no limit"),
        (lambda d: d["limits"].update(most_delta=1), "most_delta"),
        (lambda d: d["limits"].update(most_epsilon=-1), "most_epsilon"),
        (lambda d: d.update(shell=True), "unknown key"),
    ],
)
def test_what_is_not_ready_is_said(kit, edit, said):
    site = kit("a")
    change(site / OWN, edit)
    assert any(said in line for line in problems(site))


def test_epsilon_that_must_be_left_needs_a_limit(kit):
    site = kit("a")
    change(site / OWN, lambda d: d["limits"].update(least_epsilon_left=1.0))
    Ledger.for_table(site / "data" / "table.csv").set_limit(3.0, 1e-6)
    assert problems(site) == []


def test_a_kit_without_settings_is_refused(kit):
    site = kit("a")
    shutil.rmtree(site / "local")
    assert any("local: must be a folder" in line for line in problems(site))


def test_a_folder_that_is_no_kit_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a kit"):
        problems(tmp_path)


# How it starts


@pytest.mark.parametrize(
    ("name", "program"), [("a", "client_train"), ("localhost", "server_train")]
)
def test_the_engine_starts_in_a_clean_environment(kit, monkeypatch, name, program):
    started, before = [], os.umask(0o022)
    monkeypatch.setattr(kit_module.os, "execve", lambda *what: started.append(what))
    monkeypatch.setenv("LD_PRELOAD_OF_A_STRANGER", "x")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    try:
        assert main(["deploy", "start", str(found := kit(name))]) == 0
        assert os.umask(before) == 0o077
    finally:
        os.umask(before)
    ((python, argv, environment),) = started
    assert (python, Path(argv[3]).suffix) == (sys.executable, f".{program}")
    assert f"org={'hub' if name == 'localhost' else 'org_a'}" in argv
    assert environment.keys() == {
        "PATH", "HOME", "OMP_NUM_THREADS", "PYTHONSAFEPATH", "NVFLARE_DATUM_DIR"}  # fmt: skip
    assert environment["NVFLARE_DATUM_DIR"] == str(found / "transfer")


def test_what_is_not_ready_does_not_start(kit, monkeypatch, capsys):
    monkeypatch.setattr(kit_module.os, "execve", lambda *_: pytest.fail("started"))
    site = kit("a")
    (site / "local" / "a.key").unlink()
    assert main(["deploy", "start", str(site)]) == 2
    assert "no such key" in capsys.readouterr().err
    assert main(["deploy", "start", str(kit("lead@hub.org"))]) == 2
    assert "a submitter's kit" in capsys.readouterr().err


# What a project says


def test_jobs_hold_settings_alone(made, tmp_path, capsys):
    assert (
        main(["deploy", "job", str(made / "project.yml"), "--output", str(tmp_path / "jobs")]) == 0
    )
    assert capsys.readouterr().out == f"{tmp_path / 'jobs' / 'single_shot'}\n"
    files = [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        "meta.json", "config_fed_server.json", "config_fed_client.json"}  # fmt: skip
    text = "".join(path.read_text() for path in files)
    assert "table.csv" not in text
    assert text.count('"path"') == 2


def test_jobs_are_written_whole_into_a_new_folder(tmp_path):
    agreed = read_project(write_project(tmp_path))
    with pytest.raises(InputError, match="not empty"):
        write_jobs(agreed, tmp_path)
    with pytest.raises(InputError, match="there are none; must be of single_shot, train"):
        write_jobs(read_project(write_project(tmp_path, jobs={})), tmp_path / "none")
    braces = JOB | {"release": {"release": "surrogate", "k_min": 10, "{x}": 1}}
    with pytest.raises(InputError, match="unknown key"):
        read_project(write_project(tmp_path, jobs={"single_shot": braces}))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"builders": []}, "unknown key"),
        ({"sites": []}, "sites"),
        ({"sites": [{"name": "../a", "org": "bank"}]}, "sites.0.name"),
        ({"sites": [{"name": "hub.example.org", "org": "bank"}]}, "sites.0.name"),
        ({"sites": [{"name": "a", "org": "bank"}] * 2}, "used twice"),
        ({"jobs": {"single_shot": {"release": {"release": "other"}}}}, "fair or surrogate"),
        ({"jobs": {"single_shot": {"release": {"release": "fair", "k_min": 3}}}}, "k_min"),
        ({"jobs": {"single_shot": JOB | {"server": {"rho": -1}}}}, "rho"),
    ],
)
def test_projects_are_refused(tmp_path, changes, said):
    with pytest.raises(InputError, match=said):
        read_project(write_project(tmp_path, **changes))


def test_the_helps_example_is_a_project(tmp_path):
    text = inspect.cleandoc(job_command.__doc__).split("has\n")[1].split("Args:")[0]
    (tmp_path / "project.yml").write_text(text)
    found = read_project(tmp_path / "project.yml")
    assert [site.limits.kinds for site in found.sites] == [("surrogate",)] * 2
    assert found.jobs.single_shot


def test_a_project_runs_no_code(tmp_path):
    (tmp_path / "project.yml").write_text("name: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(InputError, match="not YAML"):
        read_project(tmp_path / "project.yml")


def test_every_file_is_of_a_kind_that_is_known():
    """A word that is misspelt would be compared with nothing, or never be written."""

    def kinds(tree):
        for name, must in tree.items():
            yield from (
                kinds(must)
                if name.endswith("/")
                else [must if isinstance(must, str) else next(iter(must))]
            )

    for role in ("server", "client", "admin"):
        assert set(kinds({f"{role}/": description(role)["startup/"] | description(role)["local/"]})) <= {
            "settings", "connection", "template", "private", "free"}  # fmt: skip


def test_an_engine_behind_the_first_on_the_path_does_not_matter(tmp_path, monkeypatch):
    other = tmp_path / "nvflare-2.8.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: nvflare\nVersion: 2.8.0\n")
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    require_engine()
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    with pytest.raises(InputError, match="found 2.8.0"):
        require_engine()
