import "swagger-ui-dist/swagger-ui.css";
import { pageHeader } from "./api/client";
// @ts-expect-error: the package has no types
import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";

type Request = { headers: { [name: string]: string } };
const requestInterceptor = (request: Request): Request => ({ ...request, headers: { ...request.headers, ...pageHeader() } });
SwaggerUI({ url: "api/v1/openapi.json", dom_id: "#api", deepLinking: true, requestInterceptor });
