"""The user data of one machine of a pool."""

from grange.api.kinds.nodepool import USER_DATA, NodePoolSpec
from grange.machines.bootstrap.agent_package import AgentPackage
from grange.machines.bootstrap.agent_setup import INSTALL, agent_files
from grange.machines.bootstrap.join_facts import JoinFacts
from grange.machines.bootstrap.user_data_template import fill_template
from grange.machines.providers.cloud_config import merge_cloud_config


def compose_user_data(pool: NodePoolSpec, join: JoinFacts, package: AgentPackage) -> str:
    """What the machine executes at its first start; it holds the token, so it is never logged.

    Raises:
        MisconfiguredError: the user data of the pool are malformed or too long: nothing must be
            launched with them.
    """
    if pool.bootstrap == USER_DATA:
        return fill_template(pool.user_data, join.variables())
    return merge_cloud_config(pool.user_data, agent_files(join, package), [INSTALL])
