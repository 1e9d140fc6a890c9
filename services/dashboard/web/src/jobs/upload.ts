/** Sends a model up, with a word on how far it is: fetch cannot tell. */
import { address, ApiError, pageHeader, refusal } from "../api/client";
import type { Model } from "../api/types";

export function upload(file: File, onShare: (share: number) => void): Promise<Model> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", address("models", { name: file.name }));
    const headers = { "Content-Type": "application/octet-stream", ...pageHeader() };
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => onShare(event.total > 0 ? event.loaded / event.total : 0);
    request.onerror = () => reject(new ApiError(0, "The upload broke off.", "Try again; nothing was kept of it."));
    request.onload = () => {
      if (request.status === 200) resolve(JSON.parse(request.responseText) as Model);
      else void refusal(new Response(request.responseText, { status: request.status })).then(reject);
    };
    request.send(file);
  });
}
