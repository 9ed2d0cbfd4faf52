"""docker-compose.yml does what docs/deploy.md says: commands of one line, secrets out of sight, nothing lost by kills."""

from __future__ import annotations

import json

import pytest

from tests.compose.stack import Stack

BOTH = ("flights", "submitted")
"""Pipelines by Spark Connect and by spark-submit."""
SERVED = {
    "kafka": (19092, 9092),
    "postgres": (5432,),
    "airflow-api-server": (8080,),
    "spark-master": (7077, 8081),
    "spark-worker": (8082,),
    "spark-connect": (15002, 4040),
}
"""The ports that the services listen on."""
SPARK = {"kafka", "spark-master", "spark-worker", "spark-connect"}
REACHED = {
    "kafka": SPARK,
    "spark-master": SPARK,
    "spark-worker": SPARK,
    "spark-connect": SPARK | {"postgres"},
    "postgres": {"postgres", "spark-connect", "airflow-api-server"},
    "airflow-api-server": {"postgres", "airflow-api-server"},
    "airflow-dag-processor": {"postgres", "airflow-api-server"},
    "airflow-triggerer": {"postgres", "airflow-api-server", "kafka"},
    "airflow-scheduler": {"postgres", "airflow-api-server"} | SPARK,
}
"""Who has to reach whom, and nobody else."""
PROBE = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

def reached(target):
    try:
        socket.create_connection(target[1:], timeout=4).close()
    except OSError:
        return None
    return target[0]

with ThreadPoolExecutor(40) as pool:
    print(json.dumps(sorted({name for name in pool.map(reached, json.loads(sys.argv[1])) if name})))
"""


def test_it_starts_of_one_build_and_every_volume_has_a_name(stack: Stack) -> None:
    """And no image is left that nobody uses."""
    assert {each["State"]["Health"]["Status"] for each in stack.containers()} == {"healthy"}
    mounts = [mount for each in stack.containers() for mount in each["Mounts"] if mount["Type"] == "volume"]
    assert {mount["Name"].partition("_")[0] for mount in mounts} == {stack.name}
    assert stack.untagged() <= stack.untagged_before


def test_one_line_plans_and_its_links_open_in_a_browser(stack: Stack) -> None:
    """`docker compose exec airflow-scheduler tidegate …`, as the docs have it."""
    stack.produce(10_000)
    assert "10,000" in stack.run("airflow-scheduler", "tidegate", "plan", "flights")
    stack.run("airflow-scheduler", "tidegate", "init", ".", "--topic", "flights", "--table", "lake.demo.new")
    stack.run("airflow-scheduler", "tidegate", "check")
    stack.load(*BOTH)
    stack.judge(BOTH)
    said = stack.run("airflow-scheduler", "sh", "-c", "tidegate ledger show flights 2>&1")
    assert f"http://localhost:{stack.environment['AIRFLOW_PORT']}/" in said


def test_a_replay_by_one_line_leaves_each_record_once(stack: Stack) -> None:
    stack.run("airflow-scheduler", "tidegate", "replay", "flights", "--batch", "1")
    stack.judge(BOTH)


def test_secrets_are_in_no_environment_and_no_command_line(stack: Stack) -> None:
    """Of no container as Docker shows it, and of none of the processes of this image; PostgreSQL's own keeps its password."""
    secrets = {*stack.secrets().values()}
    for container in stack.containers():
        service = container["Config"]["Labels"]["com.docker.compose.service"]
        pids = "1" if service == "postgres" else "[0-9]*"
        cat = ("sh", "-c", f"cat /proc/{pids}/environ /proc/[0-9]*/cmdline; true")
        shown = json.dumps(container)
        for user in ((), ("--user", "root")):
            shown += stack.docker("compose", "exec", "-T", *user, service, *cat)
        assert [secret for secret in secrets if secret in shown] == [], service


def test_who_needs_a_port_reaches_it_and_nobody_else(stack: Stack) -> None:
    """From each container's own network, by every address that a service has."""
    services = {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in stack.containers()}
    targets = [
        (name, network["IPAddress"], port)
        for name, ports in SERVED.items()
        for network in services[name]["NetworkSettings"]["Networks"].values()
        for port in ports
    ]
    found = {}
    for name, container in services.items():
        command = ("run", "--rm", "--network", f"container:{container['Id']}", "--entrypoint", "python", stack.image)
        found[name] = {*json.loads(stack.docker(*command, "-c", PROBE, json.dumps(targets)))}
    assert found == REACHED


@pytest.mark.parametrize("service", REACHED)
def test_what_is_killed_comes_back(stack: Stack, service: str) -> None:
    """All processes of its container at once; and then both ways load what is new."""
    stack.kill(service)
    stack.produce(1000)
    stack.load(*BOTH)
    stack.judge(BOTH)


def test_a_new_container_of_the_master_keeps_nobody_waiting(stack: Stack) -> None:
    """It finds the applications of the one before in its volume."""
    stack.up("--force-recreate", "spark-master")
    stack.produce(1000)
    stack.load(*BOTH)
    stack.judge(BOTH)


def test_two_schedulers_share_the_work_and_either_may_be_killed(stack: Stack) -> None:
    """While loads run on them, by both ways; executors call the one that they belong to."""
    stack.environment["AIRFLOW_SCHEDULERS"] = "2"
    stack.up()
    schedulers = stack.containers("airflow-scheduler")
    assert len(schedulers) == 2
    for each in schedulers:
        stack.produce(1000)
        runs = [(dag_id, stack.begin(dag_id)) for dag_id in BOTH]
        for dag_id, run_id in runs:
            stack.wait_for_load(dag_id, run_id)
        stack.docker("exec", each["Id"], "sh", "-c", "kill -9 -1", check=False)
        for dag_id, run_id in runs:
            stack.end(dag_id, run_id)
        stack.judge(BOTH)


def test_what_is_stopped_and_started_goes_on(stack: Stack) -> None:
    """`docker compose down`, without its volumes, and `up`."""
    stack.docker("compose", "down")
    stack.up()
    stack.produce(1000)
    stack.load(*BOTH)
    stack.judge(BOTH)
