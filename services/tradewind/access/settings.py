"""The settings of the access service."""

from pydantic import Field

from tradewind.server.settings import CommonSettings


class AccessSettings(CommonSettings):
    """Settings of the access service."""

    port: int = Field(7705, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    access_session_seconds: float = Field(
        86_400.0,
        ge=1,
        le=31_622_400,
        description="Seconds after its login at which a session ends, even if it is in use.",
    )
    access_idle_seconds: float = Field(
        7_200.0, ge=1, le=31_622_400, description="Seconds after its last use at which a session ends."
    )
    access_token_days: float = Field(
        90.0, gt=0, le=366, description="Longest lifetime of a token for a program, in days."
    )
