import "swagger-ui-dist/swagger-ui.css";
// @ts-expect-error: the package has no types
import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";

SwaggerUI({ url: "api/v1/openapi.json", dom_id: "#api", deepLinking: true });
