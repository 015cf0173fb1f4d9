"""Runs the members of a GangJob one after the other: each starts when the one before is done."""

import asyncio
from functools import partial
from typing import Any

from grange import GANGJOB, Condition, Deps, Done, GangJob, Result, connect, run_controllers
from grange.jobs import ControllerInterface, InvalidJob, JobController, JobLabels


class Relay(ControllerInterface[GangJob]):
    controller_name = "relay"
    kind = GANGJOB
    member = "runner"
    labels = JobLabels(
        operator=("example.com/operator", "relay"),
        job="example.com/job",
        role="example.com/role",
        index="example.com/index",
    )

    def __init__(self, deps: Deps) -> None:
        self.jobs = JobController(self, deps)

    async def reconcile_job(self, job: GangJob) -> Result:
        if job.spec.run_policy.managed_by != "example.com/relay" or job.status.completion_time:
            return Done()
        if (role := job.spec.replica_specs.get(self.member)) is None:
            raise InvalidJob(f"spec.replicaSpecs: has no role {self.member}; add it")
        pods = await self.jobs.get_pods_for_job(job)
        slices = self.jobs.get_pod_slices(pods, role.replicas)
        done = before.succeeded if (before := job.status.replica_statuses.get(self.member)) else 0
        while done < role.replicas and any(p.status.phase == "Succeeded" for p in slices[done]):
            done += 1
        failed = any(p.status.phase == "Failed" and not p.metadata.deletion_timestamp for p in pods)
        phase = "Failed" if failed else "Succeeded" if done == role.replicas else "Running"
        await self.jobs.update_job_status(job, self._status(job, phase, done))
        if phase == "Running" and not slices[done]:
            spec = {**role.template["spec"], "restartPolicy": "Never"}
            pod = self.jobs.new_pod(job, self.member, done, {**role.template, "spec": spec})
            await self.jobs.pod_control.create(job, pod)
        return Done()

    def _status(self, job: GangJob, phase: str, done: int) -> dict[str, Any]:
        now = partial(Condition, reason=f"Relay{phase}", message=f"{done} members are done")
        running = now(type="Running", status=str(phase == "Running"))
        old = job.status.conditions
        conditions = self.jobs.updated_conditions(old, running, now(type=phase, status="True"))
        ended = None if phase == "Running" else conditions[-1]["lastTransitionTime"]
        counts = {"replicaStatuses": {self.member: {"succeeded": done}}, "completionTime": ended}
        return {"phase": phase, "conditions": conditions, **counts}


async def main() -> None:
    async with connect() as client:
        await run_controllers(client, lambda deps: Relay(deps).jobs.run)


if __name__ == "__main__":
    asyncio.run(main())
