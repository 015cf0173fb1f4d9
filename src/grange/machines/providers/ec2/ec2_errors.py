"""What the errors of the API mean."""

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from grange.machines.providers.provider import (
    CapacityError,
    InstanceGoneError,
    MisconfiguredError,
    ProviderError,
    ThrottledError,
)

IS_USED_WITH_OTHERS, HAS_ENDED = "IdempotentParameterMismatch", "IdempotentInstanceTerminated"
NO_ADDRESSES = "InsufficientFreeAddressesInSubnet"

_SHORTAGE = {
    *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity"),
    *("InsufficientReservedInstanceCapacity", "SpotMaxPriceTooLow", NO_ADDRESSES),
}
_NOT_OFFERED = {"Unsupported", "UnsupportedOperation", "UnsupportedInstanceType"}
_QUOTA = {
    *("InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"),
    *("MaxSpotFleetRequestCountExceeded", "VolumeLimitExceeded", "AddressLimitExceeded"),
    *("NetworkInterfaceLimitExceeded", "InstanceCreditSpecification.LimitExceeded"),
}
_THROTTLED = {
    *("RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled"),
    *("TooManyRequestsException", "EC2ThrottledException", "SlowDown", "BandwidthLimitExceeded"),
}
_CREDENTIALS = {
    *("AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "OptInRequired"),
    *("SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException", "RequestExpired"),
    *("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "Blocked"),
    *("MissingAuthenticationToken", "PendingVerification", "InvalidAccessKeyId"),
}
# Prefixes: codes such as InvalidAMIID.NotFound, InvalidSubnetID.NotFound, InvalidParameterValue.
_MISCONFIGURED = ("Invalid", "Missing", "UnknownParameter", "AWS.SimpleQueueService.NonExistent")
_GONE = {"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "InvalidInstanceId"}
_TRANSIENT = {"InvalidState", "IncorrectInstanceState", "IncorrectState"}
_ENCODED = "Encoded authorization failure message"  # differs each time
_MESSAGE_MAX = 400


def error_code(error: Exception) -> str:
    """The code of an error of the API; empty for other errors."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return ""


def translate(call: str, error: Exception) -> ProviderError:
    """The error of a call as the protocol has it.

    Args:
        call: for the message.
        error: of the library.
    """
    code = error_code(error)
    if not code:
        return _without_answer(call, error)
    detail = ""
    if isinstance(error, ClientError):
        detail = str(error.response.get("Error", {}).get("Message", "")).partition(_ENCODED)[0]
    detail = detail[:_MESSAGE_MAX].rstrip(". ")
    what = f"ec2 {call}: {code}: {detail}"
    if code in _SHORTAGE | _NOT_OFFERED | _QUOTA:
        return _capacity_error(code, what, detail)
    if code in _THROTTLED:
        return ThrottledError(f"{what}; wait", retry_after_s=2.0)
    if code in _GONE:
        return InstanceGoneError(f"{what}; order another")
    if code in _CREDENTIALS:
        return MisconfiguredError(f"{what}; give the controllers credentials that may do it")
    if code not in _TRANSIENT and code.startswith(_MISCONFIGURED):
        return MisconfiguredError(f"{what}; change the pool")
    return ProviderError(f"{what}; it is tried again")


def _capacity_error(code: str, what: str, detail: str) -> CapacityError:
    if code in _SHORTAGE:
        return CapacityError(f"{what}; wait or allow other types and zones")
    if code in _QUOTA:
        remedy = "have the limit of the account raised"
        return CapacityError(f"{what}; {remedy}", whole_type=True, quota=True)
    in_zone = "availability zone" in detail.lower()
    return CapacityError(f"{what}; allow other types", whole_type=not in_zone)


def _without_answer(call: str, error: Exception) -> ProviderError:
    if isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound):
        return MisconfiguredError(
            f"ec2 {call}: {error}; give the controllers credentials, e.g. AWS_PROFILE"
        )
    if isinstance(error, BotoCoreError):
        return ProviderError(f"ec2 {call}: {error}; it is tried again")
    raise error
