/** What stands where a job would: it is on its way, cannot be had, or is not there. */
import type { ReactNode } from "react";
import type { Resource } from "../api/resource";
import type { Job } from "../api/types";
import { formatRoute } from "../route";
import { Crumbs } from "../ui/parts";
import { Empty, Shown } from "../ui/states";

const NOT_FOUND = 404;

export function NoJob({ jobId, of }: { jobId: string; of: Resource<Job> }): ReactNode {
  return (
    <>
      <Crumbs />
      <h1>
        Job <span className="id">{jobId}</span>
      </h1>
      {of.error?.status === NOT_FOUND ? (
        <Empty title="There is no such job">
          <p>It is another owner's, or its address is not whole.</p>
          <a href={formatRoute(["jobs"])}>To the jobs</a>
        </Empty>
      ) : (
        <Shown of={of} what="the job">
          {() => null}
        </Shown>
      )}
    </>
  );
}
