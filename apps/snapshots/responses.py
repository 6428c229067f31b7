"""An export as an answer."""

from django.http import FileResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from apps.snapshots.exports import Export


def download_response(sent: Export) -> HttpResponseBase:
    if hasattr(sent.content, "read"):
        return FileResponse(
            sent.content, as_attachment=True, filename=sent.name, content_type=sent.media_type
        )
    response = StreamingHttpResponse(sent.content, content_type=sent.media_type)
    response["Content-Disposition"] = f'attachment; filename="{sent.name}"'
    return response
